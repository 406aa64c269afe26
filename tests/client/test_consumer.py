"""The consumer with a real broker: positions, following, seeking, and missing ranges."""

import subprocess
import sys
import threading

import pytest
from tests.client.relay import Relay

from tidelog.client import Admin, Consumer, ConsumerOptions, Producer, TopicPartition
from tidelog.storage.errors import Corrupt, Invalid, NotFound, OutOfRange


def produce(broker: str, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    with Producer(broker, topic) as producer:
        for n in range(first, first + count):
            producer.send(b"%d" % n, partition=partition, timestamp_ms=1_000 * n)


@pytest.mark.parametrize(
    ("start", "expected"),
    [("start", 0), ("end", 10), ("7", 7), (7, 7), ("-3", 7), ("-30", 0), ("@4500", 5), ("@1970-01-01T00:00:09Z", 9)],
)
def test_it_begins_at_the_given_position(broker: str, topic: str, start: str | int, expected: int) -> None:
    produce(broker, topic, 10)
    with Consumer(broker, topic, partitions=[0], start=start) as consumer:
        assert consumer.positions == {TopicPartition(topic, 0): expected}
        values = [record.value for record in consumer.records(follow=False)]
    assert values == [b"%d" % n for n in range(expected, 10)]


def test_small_fetches_give_every_record_once(broker: str, topic: str) -> None:
    for partition in range(3):
        produce(broker, topic, 100, partition)
    with Consumer(broker, topic, options=ConsumerOptions(max_records=7)) as consumer:
        records = [(record.partition, record.offset) for record in consumer.records(follow=False)]
    assert sorted(records) == [(partition, offset) for partition in range(3) for offset in range(100)]


def test_following_sees_what_comes_later(broker: str, topic: str) -> None:
    with Consumer(broker, topic, start="end") as consumer:
        assert consumer.poll(timeout_s=0) is None
        producing = threading.Thread(target=produce, args=(broker, topic, 5, 2))
        producing.start()
        found = []
        for record in consumer.records():
            found.append(record.value)
            if len(found) == 5:
                break
        producing.join()
    assert found == [b"%d" % n for n in range(5)]


def test_not_following_stops_at_the_end_of_its_beginning(broker: str, topic: str) -> None:
    produce(broker, topic, 5)
    with Consumer(broker, topic, partitions=[0], options=ConsumerOptions(max_records=2)) as consumer:
        found = []
        for record in consumer.records(follow=False):
            found.append(record.value)
            if len(found) == 1:
                produce(broker, topic, 5, first=5)
    assert found == [b"%d" % n for n in range(5)]


def test_seek_goes_back_and_positions_continue(broker: str, topic: str) -> None:
    produce(broker, topic, 10)
    with Consumer(broker, topic, partitions=[0]) as consumer:
        first = consumer.poll(timeout_s=20)
        assert first is not None
        assert consumer.positions == {TopicPartition(topic, 0): first.next_offset}
        consumer.seek(TopicPartition(topic, 0), 8)
        second = consumer.poll(timeout_s=20)
        assert second is not None
        assert second.records.column("offset").to_pylist() == [8, 9]
        with pytest.raises(Invalid, match="not assigned"):
            consumer.seek(TopicPartition(topic, 1), 0)


def test_a_position_beyond_the_log_tells_the_range(broker: str, topic: str) -> None:
    produce(broker, topic, 3)
    with Consumer(broker, topic, partitions=[0], start=99) as consumer, pytest.raises(OutOfRange) as refused:
        consumer.poll(timeout_s=20)
    assert (refused.value.log_start_offset, refused.value.high_watermark) == (0, 3)


def test_a_missing_topic_is_reported(broker: str, topic: str) -> None:
    with pytest.raises(NotFound):
        Consumer(broker, "no-such-topic")
    with pytest.raises(Invalid, match="no partition 3"):
        Consumer(broker, topic, partitions=[3])
    with Admin(broker) as admin:
        assert "no-such-topic" not in {described.name for described in admin.topics()}


def test_a_consumer_that_waits_closes_soon(broker: str, topic: str) -> None:
    consumer = Consumer(broker, topic, start="end")
    assert consumer.poll(timeout_s=0.01) is None
    consumer.close()
    consumer.close()


def test_a_damaged_answer_is_an_error_and_its_records_come_with_the_next_poll(broker: str, topic: str) -> None:
    produce(broker, topic, 200)
    damaged: list[int] = []

    def damage_once(body: bytes) -> bytes:
        if damaged or not body.startswith(b"\xff\xff\xff\xff") or len(body) < 1_000:
            return body
        damaged.append(len(body))
        return body[: len(body) // 2]

    with Relay(broker, change=damage_once).running() as relay, Consumer(relay.url, topic, partitions=[0]) as consumer:
        with pytest.raises(Corrupt, match="cannot be decoded"):
            consumer.poll(10.0)
        batch = consumer.poll(10.0)
        assert batch is not None
        assert batch.records.column("offset").to_pylist() == list(range(200))


def test_a_program_that_sends_and_reads_does_not_wait_for_pandas(broker: str, topic: str) -> None:
    program = f"""
import sys
from tidelog.client import Consumer, Producer
with Producer({broker!r}, {topic!r}) as producer:
    producer.send(b"value")
with Consumer({broker!r}, {topic!r}) as consumer:
    assert [record.value for record in consumer.records(follow=False)] == [b"value"]
print([name for name in sys.modules if name == "pandas"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
