"""One bad record does not stop its batch: it is refused by name, and the others are in the log once and in order."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import msgspec
import pytest
from tests.client.relay import Answered, Relay
from tests.end_to_end.steady_load import values_of

from tidelog.client import Admin, Delivered, Producer, ProducerOptions, Refused, delivery
from tidelog.storage.errors import Invalid, TooLarge

TOO_LARGE = bytes(2_000_000)
ONE_REQUEST = ProducerOptions(batch_bytes=64 << 20, request_bytes=64 << 20, linger_ms=10_000)
"""All records sent before a flush go out in one request per partition."""


@pytest.fixture
def relay(broker: str) -> Iterator[Relay]:
    with Relay(broker).running() as running:
        yield running


def send_with_a_bad_one(producer: Producer, bad: int, count: int = 1_000) -> list[bytes | None]:
    """Send `count` records to partition 0, of which `bad` is too large; return the others."""
    for n in range(count):
        producer.send(TOO_LARGE if n == bad else b"%d" % n, b"key-%d" % n, partition=0)
    return [b"%d" % n for n in range(count) if n != bad]


def produces(relay: Relay) -> list[Answered]:
    """The append requests, without questions about sequences."""
    return [seen for seen in relay.answered if "/records" in seen.path and "expected_offset" not in seen.path]


def test_a_bad_record_is_refused_by_name_and_the_others_of_its_batch_arrive(broker: str, topic: str) -> None:
    refused: list[Refused] = []
    delivered: list[Delivered] = []
    with Producer(broker, topic, ONE_REQUEST, on_delivery=delivered.append, on_refusal=refused.append) as producer:
        expected = send_with_a_bad_one(producer, bad=500)
        producer.flush()
        producer.send(b"later", partition=0)
    assert values_of(broker, topic, 0) == [*expected, b"later"]
    (one,) = refused
    assert (one.topic, one.partition, one.number, one.key) == (topic, 0, 500, b"key-500")
    assert isinstance(one.error, TooLarge)
    assert one.error.record == 500
    assert "max.message.bytes" in str(one.error)
    assert sum(one.count for one in delivered) == 1_000


def test_without_a_callback_the_flush_tells_once_and_the_producer_continues(broker: str, topic: str) -> None:
    with Producer(broker, topic, ONE_REQUEST) as producer:
        expected = send_with_a_bad_one(producer, bad=3, count=10)
        producer.send(TOO_LARGE, partition=0)
        with pytest.raises(TooLarge, match=f"record 3 .*'key-3', for {topic}/0") as raised:
            producer.flush()
        assert raised.value.__notes__ == ["1 more records were refused"]
        producer.send(b"later", partition=0)
        producer.flush()
    assert values_of(broker, topic, 0) == [*expected, b"later"]


def test_each_partition_loses_only_its_own_bad_records(broker: str, topic: str) -> None:
    refused: list[Refused] = []
    with Producer(broker, topic, ONE_REQUEST, on_refusal=refused.append) as producer:
        for n in range(300):
            producer.send(TOO_LARGE if n in (0, 7, 299) else b"%d" % n, partition=n % 3)
    assert sorted(one.number for one in refused) == [0, 7, 299]
    for partition in range(3):
        kept = [b"%d" % n for n in range(partition, 300, 3) if n not in (0, 7, 299)]
        assert values_of(broker, topic, partition) == kept


def test_a_compacted_topic_refuses_only_the_records_without_a_key(broker: str) -> None:
    name = f"compacted-{uuid.uuid4().hex}"
    refused: list[Refused] = []
    with Admin(broker) as admin:
        admin.create_topic(name, 1, {"cleanup.policy": "compact"})
    with Producer(broker, name, on_refusal=refused.append) as producer:
        for n in range(20):
            producer.send(b"%d" % n, None if n in (4, 5) else b"k%d" % n)
    assert [one.number for one in refused] == [4, 5]
    assert values_of(broker, name, 0) == [b"%d" % n for n in range(20) if n not in (4, 5)]


def test_a_lost_answer_of_the_repaired_batch_does_not_double_it(relay: Relay, topic: str) -> None:
    lost: list[Answered] = []

    def lose_the_first_success(seen: Answered) -> bool:
        if "/records" not in seen.path or seen.status != 200 or lost:
            return False
        lost.append(seen)
        return True

    relay.lose = lose_the_first_success
    delivered: list[Delivered] = []
    options = ONE_REQUEST
    with Producer(relay.url, topic, options, on_delivery=delivered.append, on_refusal=lambda _: None) as producer:
        expected = send_with_a_bad_one(producer, bad=0)
    assert values_of(relay.broker, topic, 0) == expected
    assert [(one.base_offset, one.count, one.duplicate) for one in delivered] == [(0, 999, True)]
    assert [(seen.status, seen.sequence) for seen in produces(relay)] == [(413, "0"), (200, "0"), (200, "0")]


def test_a_refusal_after_a_lost_answer_is_no_refusal_if_the_batch_is_in_the_log(relay: Relay, topic: str) -> None:
    def lower_the_limit_and_lose(seen: Answered) -> bool:
        if "/records" not in seen.path or seen.status != 200 or len(produces(relay)) > 1:
            return False
        with Admin(relay.broker) as admin:
            admin.alter_topic(topic, configs={"max.message.bytes": 10})
        return True

    relay.lose = lower_the_limit_and_lose
    delivered: list[Delivered] = []
    refused: list[Refused] = []
    values: list[bytes | None] = [b"small", b"larger than the new limit", b"small too"]
    with Producer(relay.url, topic, ONE_REQUEST, on_delivery=delivered.append, on_refusal=refused.append) as producer:
        for value in values:
            producer.send(value, partition=0)
        producer.flush()
        producer.send(b"next", partition=0)
    assert not refused
    assert values_of(relay.broker, topic, 0) == [*values, b"next"]
    assert [(one.base_offset, one.count, one.duplicate) for one in delivered] == [(None, 3, True), (3, 1, False)]


def test_a_record_that_the_broker_does_not_name_is_found_by_halving(relay: Relay, topic: str) -> None:
    def forget_the_record(body: bytes) -> bytes:
        if not body.startswith(b'{"type":"about:blank"'):
            return body
        told = msgspec.json.decode(body, type=dict[str, object])
        told.pop("record", None)
        return msgspec.json.encode(told)

    relay.change = forget_the_record
    refused: list[Refused] = []
    with Producer(relay.url, topic, ONE_REQUEST, on_refusal=refused.append) as producer:
        expected = send_with_a_bad_one(producer, bad=777)
    assert [one.number for one in refused] == [777]
    assert values_of(relay.broker, topic, 0) == expected
    assert len(produces(relay)) <= 2 * 10 + 1, "a search by halves"


def test_a_batch_of_bad_records_is_given_up_at_a_bound(
    relay: Relay, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "REFUSALS_MAX", 3)
    refused: list[Refused] = []
    with Producer(relay.url, topic, ONE_REQUEST, on_refusal=refused.append) as producer:
        for _ in range(10):
            producer.send(TOO_LARGE, partition=0)
        producer.flush()
        producer.send(b"good", partition=0)
    assert len(produces(relay)) == 3 + 1 + 1
    assert [one.number for one in refused] == list(range(10))
    assert values_of(relay.broker, topic, 0) == [b"good"]


def test_a_request_that_is_wrong_itself_fails_its_producer_at_once(relay: Relay, topic: str) -> None:
    producer = Producer(relay.url, topic, ProducerOptions(producer_id="no spaces"))
    for _ in range(10):
        producer.send(b"good", partition=0)
    with pytest.raises(Invalid, match="Tidelog-Producer-Id"):
        producer.close()
    assert len(produces(relay)) == 1


@pytest.mark.parametrize("acks", ["0", "1"])
def test_it_is_the_same_without_sequences(broker: str, topic: str, acks: str) -> None:
    refused: list[Refused] = []
    options = ProducerOptions(acks=acks, linger_ms=10_000)  # type: ignore[arg-type]  # parametrize gives text
    with Producer(broker, topic, options, on_refusal=refused.append) as producer:
        expected = send_with_a_bad_one(producer, bad=5, count=10)
    assert [one.number for one in refused] == [5]
    assert values_of(broker, topic, 0) == expected


def test_a_record_that_is_not_bytes_does_not_sink_its_batch(broker: str, topic: str) -> None:
    with Producer(broker, topic, ONE_REQUEST) as producer:
        producer.send(b"before", partition=0)
        producer.send([1, 2], partition=0)  # type: ignore[arg-type]  # the mistake under test
        producer.send(b"after", partition=0)
        with pytest.raises(Invalid, match=r"record 1 .*bytes or None"):
            producer.flush()
    assert values_of(broker, topic, 0) == [b"before", b"after"]


def test_a_partition_that_is_not_there_is_refused_before_it_is_gathered(broker: str, topic: str) -> None:
    with Producer(broker, topic) as producer:
        with pytest.raises(Invalid, match="no partition 3"):
            producer.send(b"x", partition=3)
        producer.send(b"good", partition=2)
    assert values_of(broker, topic, 2) == [b"good"]
