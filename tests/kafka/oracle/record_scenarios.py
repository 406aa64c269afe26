"""Produce, Fetch and ListOffsets."""

from __future__ import annotations

from typing import Any

from tests.kafka.oracle.pair import LIST_OFFSETS, Pair
from tests.kafka.oracle.scenarios import scenario
from tests.kafka.sent_batches import BEGAN_MS, Producer, records_of, sent, sent_values

from tidelog.services.kafka.protocol.api_table import FETCH, PRODUCE

THREE = sent_values(b"a", b"b", b"c")
PRODUCER_ID = 4_711


async def _produce(pair: Pair, version: int, topic: str, records: bytes | None, **fields: Any) -> None:
    part = {"index": fields.pop("partition", 0), "records": records}
    given = {"acks": -1, "timeout": 10_000, "topic_data": [{"name": topic, "partition_data": [part]}]}
    await pair.ask(PRODUCE, version, **(given | fields))


async def _filled(pair: Pair, topic: str) -> None:
    await pair.topic(topic)
    for _ in range(2):
        data = [{"name": topic, "partition_data": [{"index": 0, "records": THREE}]}]
        await pair.unchecked(PRODUCE, 9, acks=-1, timeout=10_000, topic_data=data)


@scenario(PRODUCE)
async def good_batches(pair: Pair, version: int) -> None:
    topic = f"good-{version}"
    await pair.topic(topic)
    for acks in (-1, 1):
        await _produce(pair, version, topic, THREE, acks=acks)


@scenario(PRODUCE)
async def log_append_time(pair: Pair, version: int) -> None:
    topic = f"append-time-{version}"
    await pair.topic(topic, message_timestamp_type="LogAppendTime")
    await _produce(pair, version, topic, THREE)


@scenario(PRODUCE)
async def batches_that_are_refused(pair: Pair, version: int) -> None:
    topic = f"refused-{version}"
    await pair.topic(topic)
    flipped = THREE[:-1] + bytes([THREE[-1] ^ 1])
    old_magic = THREE[:16] + b"\1" + THREE[17:]
    for wrong in (flipped, THREE + THREE, THREE[:-3], THREE[:20], b"", old_magic, sent(records_of())):
        await _produce(pair, version, topic, wrong)


@scenario(PRODUCE)
async def produce_to_nothing(pair: Pair, version: int) -> None:
    await pair.topic("somewhere")
    await _produce(pair, version, "nowhere", THREE)
    await _produce(pair, version, "bad name", THREE)
    await _produce(pair, version, "somewhere", THREE, partition=7)
    await _produce(pair, version, "somewhere", THREE, acks=5)


@scenario(PRODUCE)
async def sequences(pair: Pair, version: int) -> None:
    topic = f"sequences-{version}"
    await pair.topic(topic)
    for epoch, sequence in ((0, 0), (0, 0), (0, 3), (0, 0), (0, 99), (1, 5), (1, 0), (0, 6)):
        batch = sent(records_of(b"a", b"b", b"c"), Producer(PRODUCER_ID, epoch, sequence))
        await _produce(pair, version, topic, batch)


@scenario(PRODUCE)
async def a_first_sequence_above_zero(pair: Pair, version: int) -> None:
    topic = f"first-sequence-{version}"
    await pair.topic(topic)
    await _produce(pair, version, topic, sent(records_of(b"a"), Producer(PRODUCER_ID, 0, 5)))


async def _fetch(pair: Pair, version: int, topic: str, offset: int, **fields: Any) -> None:
    part = {
        "partition": fields.pop("partition", 0),
        "fetch_offset": offset,
        "partition_max_bytes": fields.pop("partition_max_bytes", 1 << 20),
    }
    given = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    await pair.ask(FETCH, version, **(given | {"topics": [{"topic": topic, "partitions": [part]}]} | fields))


@scenario(FETCH)
async def fetch_of_records(pair: Pair, version: int) -> None:
    topic = f"fetched-{version}"
    await _filled(pair, topic)
    for offset in (0, 3, 6, 7, -1):
        await _fetch(pair, version, topic, offset)
    await _fetch(pair, version, topic, 0, isolation_level=1)


@scenario(FETCH)
async def fetch_with_small_limits(pair: Pair, version: int) -> None:
    topic = f"limits-{version}"
    await _filled(pair, topic)
    await _fetch(pair, version, topic, 0, max_bytes=1)
    await _fetch(pair, version, topic, 0, partition_max_bytes=1)
    await _fetch(pair, version, topic, 0, max_bytes=0)


@scenario(FETCH)
async def fetch_of_nothing(pair: Pair, version: int) -> None:
    await pair.topic("empty")
    await _fetch(pair, version, "empty", 0)
    await _fetch(pair, version, "nowhere", 0)
    await _fetch(pair, version, "bad name", 0)
    await _fetch(pair, version, "empty", 0, partition=7)
    await _fetch(pair, version, "empty", 0, session_id=77, session_epoch=3)
    await pair.ask(FETCH, version, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1, topics=[])


@scenario(LIST_OFFSETS)
async def offsets(pair: Pair, version: int) -> None:
    topic = f"offsets-{version}"
    await _filled(pair, topic)
    for time_ms in (-1, -2, BEGAN_MS, BEGAN_MS + 1, BEGAN_MS + 2, BEGAN_MS + 3, 0, -3, -4, -5, -6, -7):
        await _list(pair, version, topic, time_ms)


@scenario(LIST_OFFSETS)
async def offsets_of_nothing(pair: Pair, version: int) -> None:
    await pair.topic("empty")
    for topic, partition in (("empty", 0), ("nowhere", 0), ("bad name", 0), ("empty", 7)):
        for time_ms in (-1, -2, -3, BEGAN_MS):
            await _list(pair, version, topic, time_ms, partition)


async def _list(pair: Pair, version: int, topic: str, time_ms: int, partition: int = 0) -> None:
    part = {"partition_index": partition, "timestamp": time_ms}
    await pair.ask(LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": [part]}])
