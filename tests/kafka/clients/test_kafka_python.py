"""kafka-python, in this process. A line that it logs as a warning or an error fails the test."""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from tests.kafka.clients.circle import (
    BASE_MS,
    CONFIGS,
    EACH,
    MORE_PARTITIONS,
    PARTITIONS,
    Row,
    assert_complete,
    content,
    without_offset,
)
from tests.kafka.conftest import KafkaServed

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by a deprecated function
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import TopicAlreadyExistsError

TOPIC, GROUP = "events", "billing"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
SENT = EACH * len(CODECS) * 4
WAIT_S = 30.0
FIRST = TopicPartition(TOPIC, 0)
CLOSED = "Metadata refresh: failed Cancelled"
"""The client says so if it is closed while it waits for metadata."""
SLOWNESS = "kafka.net.selector"
"""This logger says how slow the machine is."""
TURN_MS = 500
"""A member that polls for less may give up the commit that goes before a rebalance."""


async def test_the_whole_circle(served: KafkaServed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kafka")
    await asyncio.to_thread(circle, f"127.0.0.1:{served.port}")
    lines = {each.getMessage() for each in caplog.records if each.name.startswith("kafka") and each.name != SLOWNESS}
    assert lines <= {CLOSED}


def circle(bootstrap: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        create(admin)
        produce(bootstrap)
        assert_complete(read_all(bootstrap), SENT, sendable)
        assert without_offset(read_from(bootstrap, BASE_MS + 40)) == sendable(40)
        assert share(bootstrap) == SENT
        administer_groups(admin)
        assert admin.delete_records({FIRST: 5})[FIRST]["low_watermark"] == 5
        admin.delete_topics([TOPIC])
        assert admin.list_topics() == []


def create(admin: KafkaAdminClient) -> None:
    wanted = {TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": {"retention.ms": "86400000"}}}
    admin.create_topics(wanted)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(wanted)
    admin.create_partitions({TOPIC: MORE_PARTITIONS})
    (described,) = admin.describe_topics([TOPIC])
    assert len(described["partitions"]) == MORE_PARTITIONS
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, {"max.message.bytes": "2000000"})])
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)])["topic"][TOPIC]
    assert {name: config["value"] for name, config in found.items()} == CONFIGS


def produce(bootstrap: str) -> None:
    n = 0
    for codec in CODECS:
        for acks, idempotent in ((0, False), (1, False), ("all", False), ("all", True)):
            settings = {"acks": acks, "enable_idempotence": idempotent, "compression_type": codec}
            with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:
                futures = [send(producer, each) for each in range(n, n + EACH)]
                producer.flush(WAIT_S)
                assert all(future.succeeded() for future in futures)
            n += EACH


def sendable(n: int) -> list[Any]:
    """Record `n`; this client refuses a record that has neither key nor value, and headers without a value."""
    partition, timestamp_ms, key, value, _ = content(n)
    return [partition, timestamp_ms, key, "" if key is value is None else value, ["n", str(n), "empty", ""]]


def send(producer: KafkaProducer, n: int) -> Any:
    partition, timestamp_ms, key, value, _ = sendable(n)
    headers = [("n", b"%d" % n), ("empty", b"")]
    fields = (None if each is None else str(each).encode() for each in (value, key))
    return producer.send(TOPIC, *fields, headers, partition, timestamp_ms)


def reader(bootstrap: str, **settings: Any) -> KafkaConsumer:
    own = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    return KafkaConsumer(bootstrap_servers=bootstrap, **own)


def rows_of(polled: dict[TopicPartition, Sequence[Any]]) -> list[Row]:
    return [
        (
            each.partition,
            each.offset,
            each.timestamp,
            *(None if field is None else field.decode() for field in (each.key, each.value)),
            [field.decode() if isinstance(field, bytes) else field for header in each.headers for field in header],
        )
        for records in polled.values()
        for each in records
    ]


def read_all(bootstrap: str) -> list[Row]:
    with closing(reader(bootstrap)) as consumer:
        partitions = [TopicPartition(TOPIC, n) for n in range(MORE_PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        assert sum(consumer.end_offsets(partitions).values()) == SENT
        found: list[Row] = []
        until(lambda: found.extend(rows_of(consumer.poll(1_000))) or len(found) >= SENT)
        return found


def read_from(bootstrap: str, timestamp_ms: int) -> Row:
    with closing(reader(bootstrap)) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, consumer.offsets_for_times({FIRST: timestamp_ms})[FIRST].offset)
        return rows_of(consumer.poll(int(WAIT_S * 1000)))[0]


def share(bootstrap: str) -> int:
    """A second member joins and leaves a group while the first one reads. Returns how many records both read."""
    read = 0

    def turn(*members: KafkaConsumer) -> tuple[int, ...]:
        nonlocal read
        read += sum(len(rows_of(member.poll(TURN_MS))) for member in members)
        return tuple(len(member.assignment()) for member in members)

    with closing(member_of(bootstrap)) as first:
        until(lambda: turn(first) == (MORE_PARTITIONS,))
        with closing(member_of(bootstrap)) as second:
            until(lambda: turn(first, second) == (3, 3))
            until(lambda: turn(first, second) and read >= SENT)
        until(lambda: turn(first) == (MORE_PARTITIONS,))
    return read


def member_of(bootstrap: str) -> KafkaConsumer:
    """It commits before partitions are taken from it, so no record is read twice."""
    member = reader(bootstrap, group_id=GROUP, enable_auto_commit=True, heartbeat_interval_ms=200)
    member.subscribe([TOPIC])
    return member


def administer_groups(admin: KafkaAdminClient) -> None:
    assert [group["group_id"] for group in admin.list_groups()] == [GROUP]
    assert str(admin.describe_groups([GROUP])[GROUP]["group_state"]).lower().endswith("empty")
    offsets = admin.list_group_offsets([GROUP])[GROUP]
    assert sum(each.offset for each in offsets.values()) == SENT
    admin.alter_group_offsets(GROUP, {FIRST: OffsetAndMetadata(7, "back", -1)})
    moved = admin.list_group_offsets([GROUP])[GROUP][FIRST]
    assert (moved.offset, moved.metadata) == (7, "back")
    admin.delete_group_offsets(GROUP, [FIRST])
    assert FIRST not in admin.list_group_offsets([GROUP])[GROUP]
    admin.delete_groups([GROUP])
    assert admin.list_groups() == []


def until(condition: Callable[[], Any]) -> None:
    over = threading.Event()
    timer = threading.Timer(WAIT_S, over.set)
    timer.start()
    try:
        while not condition():
            assert not over.is_set(), f"not within {WAIT_S} s"
    finally:
        timer.cancel()
