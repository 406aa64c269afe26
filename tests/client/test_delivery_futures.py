"""Futures of single records and the choice of partitions, with a real broker."""

from __future__ import annotations

import zlib

import pytest
from tests.client.relay import Answered, Relay

from tidelog.client import DeliveredRecord, Producer, ProducerOptions
from tidelog.client.partitioners import Partitioner
from tidelog.storage.errors import Invalid, TooLarge, Unavailable

WAIT_S = 20.0


def test_each_future_tells_where_its_record_is(broker: str, topic: str) -> None:
    with Producer(broker, topic) as producer:
        futures = {}
        for number in range(50):
            partition = number % 3
            if number % 5:
                producer.send(b"other", partition=partition)
            else:
                futures[number] = producer.send_future(b"%d" % number, partition=partition)
        found = {number: future.result(WAIT_S) for number, future in futures.items()}
    assert found == {number: DeliveredRecord(topic, number % 3, number // 3) for number in range(0, 50, 5)}


def test_refused_records_fail_their_futures_and_no_other(broker: str, topic: str) -> None:
    with Producer(broker, topic) as producer:
        before = producer.send_future(b"before", partition=0)
        large = producer.send_future(bytes(2_000_000), partition=0)
        after = producer.send_future(b"after", partition=0)
        unfit = producer.send_future(b"v", 5, partition=0)  # type: ignore[arg-type]  # the mistake under test
        producer.flush()
        assert isinstance(large.exception(WAIT_S), TooLarge)
        assert isinstance(unfit.exception(WAIT_S), Invalid)
        assert (before.result(WAIT_S).offset, after.result(WAIT_S).offset) == (0, 1)


def test_a_repeated_record_is_a_duplicate(broker: str, topic: str) -> None:
    lost: list[str] = []

    def first_produce(seen: Answered) -> bool:
        if not lost and seen.sequence is not None and seen.status == 200:
            lost.append(seen.path)
            return True
        return False

    with Relay(broker, lose=first_produce).running() as relay, Producer(relay.url, topic) as producer:
        found = producer.send_future(b"once", partition=0).result(WAIT_S)
    assert found == DeliveredRecord(topic, 0, 0, duplicate=True)


def test_futures_end_when_the_producer_fails_or_is_left(broker: str, topic: str) -> None:
    with Relay(broker).running() as relay:
        producer = Producer(relay.url, topic, ProducerOptions(delivery_timeout_s=0.2, close_timeout_s=5.0))
    future = producer.send_future(b"x", partition=0)
    assert isinstance(future.exception(WAIT_S), Unavailable)
    with pytest.raises(Unavailable):
        producer.close()


def test_a_call_that_is_refused_leaves_no_future(broker: str, topic: str) -> None:
    with Producer(broker, topic) as producer:
        with pytest.raises(Invalid, match="no partition 9"):
            producer.send_future(b"x", partition=9)
        assert producer.send_future(b"y", partition=0).result(WAIT_S).offset == 0


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [
        ("crc32", lambda key: zlib.crc32(key) % 3),
        (lambda key, count: len(key) % count, lambda key: len(key) % 3),
    ],
)
def test_the_partitioner_chooses(broker: str, topic: str, partitioner: Partitioner, expected: object) -> None:
    assert callable(expected)
    keys = [b"a" * size for size in range(1, 8)]
    with Producer(broker, topic, ProducerOptions(partitioner=partitioner)) as producer:
        found = [producer.send_future(b"v", key).result(WAIT_S).partition for key in keys]
    assert found == [expected(key) for key in keys]


def test_a_partitioner_that_is_wrong_fails_the_producer_with_its_error(broker: str, topic: str) -> None:
    producer = Producer(broker, topic, ProducerOptions(partitioner=lambda key, count: count))
    future = producer.send_future(b"v", b"key")
    with pytest.raises(Invalid, match="chose partition 3"):
        future.result(WAIT_S)
    with pytest.raises(Invalid, match="chose partition 3"):
        producer.close()
    with pytest.raises(Invalid, match="partitioner is"):
        Producer(broker, topic, ProducerOptions(partitioner="fnv1a"))  # type: ignore[arg-type]  # the mistake under test
