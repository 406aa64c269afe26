"""The producer with a real broker: order, keys, batches, bounds, and errors."""

import threading
import uuid
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from infra.loopback_ports import free_port
from tests.client.relay import Answered, Relay
from tests.end_to_end.steady_load import values_of

from tidelog.client import Admin, Consumer, Delivered, Producer, ProducerOptions
from tidelog.storage.errors import Invalid, NotFound, ProducerFenced, SequenceConflict, Unavailable
from tidelog.storage.partitioner import partitions_of


def all_values(broker: str, topic: str, partitions: int = 3) -> dict[int, list[bytes | None]]:
    return {partition: values_of(broker, topic, partition) for partition in range(partitions)}


def test_records_of_a_partition_keep_their_order_over_many_requests(broker: str, topic: str) -> None:
    delivered: list[Delivered] = []
    options = ProducerOptions(batch_bytes=2_000, request_bytes=4_000)
    with Producer(broker, topic, options, on_delivery=delivered.append) as producer:
        for n in range(5_000):
            producer.send(b"%d" % n, partition=n % 3)
    assert all_values(broker, topic) == {p: [b"%d" % n for n in range(p, 5_000, 3)] for p in range(3)}
    assert len(delivered) > 10
    assert sum(one.count for one in delivered) == 5_000
    offsets = defaultdict(list)
    for one in delivered:
        offsets[one.partition].append((one.base_offset, one.count))
    for spans in offsets.values():
        assert [base for base, _ in spans] == [0, *np.cumsum([count for _, count in spans[:-1]])]


def test_keys_go_where_kafka_puts_them_and_all_fields_arrive(broker: str, topic: str) -> None:
    keys = [b"user-%d" % n for n in range(50)]
    with Producer(broker, topic) as producer:
        for key in keys:
            producer.send(key + b"!", key, timestamp_ms=1_000, headers=[("h", b"1"), ("n", None)])
        producer.send(None, b"tombstone")
    by_key = partitions_of(pa.chunked_array([pa.array(keys, pa.binary())]), 3).tolist()
    with Consumer(broker, topic) as consumer:
        records = {record.key: record for record in consumer.records(follow=False)}
    assert {key: records[key].partition for key in keys} == dict(zip(keys, by_key, strict=True))
    first = records[keys[0]]
    assert (first.value, first.timestamp_ms, first.headers) == (b"user-0!", 1_000, (("h", b"1"), ("n", None)))
    assert records[b"tombstone"].value is None


def test_arrow_tables_go_out_as_they_are(broker: str, topic: str) -> None:
    table = pa.table({"value": [b"%d" % n for n in range(10_000)], "partition": [n % 3 for n in range(10_000)]})
    with Producer(broker, topic, ProducerOptions(request_bytes=10_000)) as producer:
        producer.send_batch(table)
        producer.send_batch(pa.record_batch({"value": [b"last"], "partition": [0]}))
        producer.send_batch(table.slice(0, 0))
    expected: dict[int, list[bytes | None]] = {p: [b"%d" % n for n in range(p, 10_000, 3)] for p in range(3)}
    expected[0].append(b"last")
    assert all_values(broker, topic) == expected


def test_a_lingering_record_goes_out_by_itself(broker: str, topic: str) -> None:
    arrived = threading.Event()
    with Producer(broker, topic, on_delivery=lambda _: arrived.set()) as producer:
        producer.send(b"alone")
        assert arrived.wait(20)


def test_many_threads_may_send(broker: str, topic: str) -> None:
    with Producer(broker, topic, ProducerOptions(batch_bytes=1_000)) as producer:

        def send(name: int) -> None:
            for n in range(500):
                producer.send(b"%d:%d" % (name, n), partition=0)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = values_of(broker, topic, 0)
    for name in range(4):
        own = [value for value in found if value is not None and value.startswith(b"%d:" % name)]
        assert own == [b"%d:%d" % (name, n) for n in range(500)]


def test_memory_is_bounded_and_send_waits(broker: str, topic: str) -> None:
    options = ProducerOptions(batch_bytes=10_000, buffer_bytes=50_000)
    with Producer(broker, topic, options) as producer:
        for n in range(2_000):
            producer.send(b"%d".ljust(1_000) % n, partition=0)
    assert len(values_of(broker, topic, 0)) == 2_000


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_kind_of_acknowledgement_is_taken(broker: str, topic: str, acks: str) -> None:
    delivered: list[Delivered] = []
    options = ProducerOptions(acks=acks)  # type: ignore[arg-type]  # parametrize gives text
    with Producer(broker, topic, options, on_delivery=delivered.append) as producer:
        producer.send(b"x", partition=1)
    assert [(one.base_offset, one.count) for one in delivered] == [(None if acks == "0" else 0, 1)]


def test_a_topic_that_is_not_there_is_created_by_the_broker(broker: str) -> None:
    name = f"new-{uuid.uuid4().hex}"
    with Producer(broker, name) as producer:
        assert producer.partition_count == 3
        producer.send(b"first", partition=0)
    assert values_of(broker, name, 0) == [b"first"]


def test_a_request_that_fails_for_good_fails_its_producer_and_every_later_call(broker: str) -> None:
    name = f"deleted-{uuid.uuid4().hex}"
    with Admin(broker) as admin:
        admin.create_topic(name)
        producer = Producer(broker, name, ProducerOptions(producer_id="not a producer id"))
    producer.send(b"1")
    with pytest.raises(Invalid, match="Tidelog-Producer-Id"):
        producer.flush()
    with pytest.raises(Invalid):
        producer.send(b"later")
    with pytest.raises(Invalid):
        producer.close()


def test_an_answer_that_was_lost_is_reported_as_a_duplicate(broker: str, topic: str) -> None:
    lost: list[Answered] = []

    def lose_the_first(seen: Answered) -> bool:
        if "/records" in seen.path:
            lost.append(seen)
        return len(lost) == 1

    delivered: list[Delivered] = []
    with (
        Relay(broker, lose=lose_the_first).running() as relay,
        Producer(relay.url, topic, on_delivery=delivered.append) as producer,
    ):
        producer.send(b"1", partition=0)
        producer.flush()
        producer.send(b"2", partition=0)
    assert [(one.base_offset, one.count, one.duplicate) for one in delivered] == [(0, 1, True), (1, 1, False)]
    assert values_of(broker, topic, 0) == [b"1", b"2"]


def test_a_closed_producer_takes_nothing(broker: str, topic: str) -> None:
    producer = Producer(broker, topic)
    producer.close()
    producer.close()
    with pytest.raises(Invalid, match="closed"):
        producer.send(b"x")


def test_a_bug_in_the_callback_surfaces(broker: str, topic: str) -> None:
    def broken(_: Delivered) -> None:
        raise ZeroDivisionError

    producer = Producer(broker, topic, on_delivery=broken)
    producer.send(b"x")
    with pytest.raises(ZeroDivisionError):
        producer.close()


def test_an_older_epoch_is_fenced_by_a_newer(broker: str, topic: str) -> None:
    old = Producer(broker, topic, ProducerOptions(producer_id="p"))
    old.send(b"1", partition=0)
    old.flush()
    with Producer(broker, topic, ProducerOptions(producer_id="p", producer_epoch=1)) as new:
        new.send(b"2", partition=0)
    old.send(b"3", partition=0)
    with pytest.raises((ProducerFenced, SequenceConflict)):
        old.close()
    assert values_of(broker, topic, 0) == [b"1", b"2"]


def test_without_a_broker_it_says_what_to_do() -> None:
    with pytest.raises(Unavailable, match="tidelog serve"):
        Producer(f"http://127.0.0.1:{free_port()}", "web", ProducerOptions(connect_timeout_s=0.2))


def test_a_topic_no_log_can_have_is_refused(broker: str) -> None:
    for name in ("no spaces", "", "..", "a/b"):
        with pytest.raises((Invalid, NotFound)):
            Producer(broker, name)
    with Admin(broker) as admin:
        assert not {"no spaces", "", "..", "a/b"} & {topic.name for topic in admin.topics()}
