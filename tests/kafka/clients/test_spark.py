"""Spark's Kafka connector, in a process with its jars: batches, streams and writes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.components.required import require_component
from tests.kafka.clients.circle import BASE_MS, PARTITIONS, Row, assert_complete, content
from tests.kafka.clients.spark_program import SEEN
from tests.kafka.conftest import KafkaServed

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("spark_program.py")
ROOT = PROGRAM.parents[3]
SENT = 200
WAIT_S = 20.0


async def test_the_whole_circle(served: KafkaServed, tmp_path: Path) -> None:
    require_component("spark-kafka")
    bootstrap = f"127.0.0.1:{served.port}"
    await asyncio.to_thread(prepare, bootstrap)
    seen = await seen_by_spark(bootstrap, tmp_path)
    assert_complete([row[:6] for row in seen["batch"]], SENT)
    assert {row[6] for row in seen["batch"]} == {"events"}
    later = [row for row in seen["batch"] if row[2] >= BASE_MS + 40]
    assert seen["by_time"] == later
    assert seen["stream"]["rows"] == seen["batch"]
    assert seen["stream"]["batches"] == [3, 0], "three batches, and none that the restarted stream reads again"
    for topic in ("copied", "streamed"):
        assert without_place(await asyncio.to_thread(read, bootstrap, topic)) == without_place(seen["batch"])


async def seen_by_spark(bootstrap: str, folder: Path) -> Any:
    """What the program saw. Its output goes into a file: Spark's JVM may outlive the program for a moment, and would
    keep a pipe open."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(PROGRAM), bootstrap, str(folder), str(BASE_MS)]
    with (folder / "log").open("wb") as log:
        program = await asyncio.create_subprocess_exec(*command, env=env, stdout=log, stderr=log)
        assert await program.wait() == 0, (folder / "log").read_text()
    return json.loads((folder / SEEN).read_text())


def prepare(bootstrap: str) -> None:
    """The topics, and the records of `events`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS) for name in ("events", "copied", "streamed")]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(SENT):
        partition, timestamp_ms, key, value, _ = content(n)
        headers = [("n", str(n).encode()), ("empty", None)]
        producer.produce("events", value, key, partition, timestamp=timestamp_ms, headers=headers)
    assert producer.flush(WAIT_S) == 0


def read(bootstrap: str, topic: str) -> list[Row]:
    """All records of `topic`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    try:
        found = consumer.consume(SENT, WAIT_S)
    finally:
        consumer.close()
    return sorted((row_of(message) for message in found), key=lambda row: row[:2])


def row_of(message: Message) -> Row:
    headers = [part for name, value in message.headers() or () for part in (name, text(value))]
    timestamp_ms = message.timestamp()[1]
    return [message.partition(), message.offset(), timestamp_ms, text(message.key()), text(message.value()), headers]


def text(given: bytes | None) -> str | None:
    return None if given is None else given.decode()


def without_place(rows: Sequence[Row]) -> list[Row]:
    """Partition, key, value and headers. Spark writes without times, and its tasks write in any order."""
    return sorted(([row[0], *row[3:6]] for row in rows), key=str)
