"""Spark reads what clients of Kafka produced, archived and not, and Kafka's clients read what Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition
from infra.loopback_ports import free_ports
from pyspark.sql import SparkSession
from tests.spark.serving import ARCHIVES, KEEPS_HOT, Record, Serving, expected_row, records, rows_of, serving

pytestmark = pytest.mark.spark

TOPIC = "mixed"
COUNT = 24
"""Of each interface. Every record is of another kind."""
WAIT_S = 30.0


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def broker(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Records of both interfaces in the archive, and after them again of both in the hot tail."""
    store = f"file:{tmp_path}/bucket"
    monkeypatch.setenv("TIDELOG_LISTENERS", f"PLAINTEXT://127.0.0.1:{port}")
    with serving(tmp_path, store, {"shards": 1, **ARCHIVES}) as first:
        first.create_topic(TOPIC, 1)
        first.produce(TOPIC, 0, records(0, 0, COUNT))
        produce_by_kafka(port, records(0, COUNT, 2 * COUNT))
        first.wait_until_archived(TOPIC)
    with serving(tmp_path, store, {"shards": 1, **KEEPS_HOT}) as second:
        produce_by_kafka(port, records(0, 2 * COUNT, 3 * COUNT))
        second.produce(TOPIC, 0, records(0, 3 * COUNT, 4 * COUNT))
        yield second


def test_spark_and_clients_of_kafka_read_the_same_records(spark: SparkSession, broker: Serving, port: int) -> None:
    expected = records(0, 0, 4 * COUNT)
    options = {"broker": broker.url, "subscribe": TOPIC, "includeHeaders": "true"}
    frame = spark.read.format("tidelog").options(**options).load()
    found = [tuple(row) for row in rows_of(frame)]
    assert [without_empty(row) for row in found] == [
        without_empty(expected_row(TOPIC, 0, each, headers=True)) for each in expected
    ]
    assert read_by_kafka(port, len(expected)) == [replace(each, headers=each.headers or ()) for each in expected]


def without_empty(row: tuple[object, ...]) -> tuple[object, ...]:
    """Kafka's protocol does not tell no headers from an empty list of them."""
    return (*row[:-1], row[-1] or None)


def produce_by_kafka(port: int, produced: Sequence[Record]) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "enable.idempotence": True})
    for each in produced:
        told = {"timestamp": each.timestamp_ms, "headers": list(each.headers or ())}
        producer.produce(TOPIC, each.value, each.key, 0, **told)
    assert producer.flush(WAIT_S) == 0


def read_by_kafka(port: int, count: int) -> list[Record]:
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[Record] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None
        kind, time_ms = message.timestamp()
        assert kind == TIMESTAMP_CREATE_TIME
        headers = tuple(message.headers() or ())
        found.append(Record(message.offset() or 0, time_ms, message.key(), message.value(), headers))
    consumer.close()
    return found
