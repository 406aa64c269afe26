"""InitProducerId, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any

from tests.kafka.oracle.messages import Each
from tests.kafka.oracle.pair import Pair
from tests.kafka.oracle.scenarios import scenario
from tests.kafka.sent_batches import sent_values

from tidelog.services.kafka.protocol.api_table import METADATA, PRODUCE

DELETE_RECORDS, INIT_PRODUCER, LEADER_EPOCH = 21, 22, 23
CONSUMER = -1
NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1}


@scenario(INIT_PRODUCER)
async def producer_ids(pair: Pair, version: int) -> None:
    await pair.producer_ids_ready()
    answers = await pair.ask(INIT_PRODUCER, version, transactional_id=None, transaction_timeout=1_000, **NO_PRODUCER)
    known = Each(answers.kafka.producer_id, answers.tidelog.producer_id)
    for producer, epoch in ((known, 0), (known, 7)):
        given = {"producer_id": producer, "producer_epoch": epoch}
        await pair.ask(INIT_PRODUCER, version, transactional_id=None, transaction_timeout=1_000, **given)


async def _filled(pair: Pair, topic: str) -> None:
    await pair.topic(topic, retention_ms="-1")  # the records have old times
    for _ in range(2):
        data = [{"name": topic, "partition_data": [{"index": 0, "records": sent_values(b"a", b"b")}]}]
        await pair.unchecked(PRODUCE, 9, acks=-1, timeout=10_000, topic_data=data)


async def _epoch(pair: Pair, topic: str) -> Each:
    """The leader's epoch on both."""
    found = await pair.unchecked(METADATA, 12, topics=[{"name": topic, "topic_id": None}])
    return Each(*(each.topics[0].partitions[0].leader_epoch for each in (found.kafka, found.tidelog)))


@scenario(LEADER_EPOCH)
async def ends_of_epochs(pair: Pair, version: int) -> None:
    topic = f"epochs-{version}"
    await _filled(pair, topic)
    now = await _epoch(pair, topic)
    later = Each(now.kafka + 5, now.tidelog + 5)
    for name, partition, known, asked in (
        (topic, 0, -1, now),
        (topic, 0, now, now),
        (topic, 0, -1, later),
        (topic, 0, later, now),
        (topic, 0, -1, -1),
        (topic, 7, -1, 0),
        ("nowhere", 0, -1, 0),
        ("bad name", 0, -1, 0),
    ):
        part = {"partition": partition, "current_leader_epoch": known, "leader_epoch": asked}
        await pair.ask(LEADER_EPOCH, version, replica_id=CONSUMER, topics=[{"topic": name, "partitions": [part]}])


async def _delete(pair: Pair, version: int, topic: str, partition: int, offset: int) -> None:
    parts: list[dict[str, Any]] = [{"partition_index": partition, "offset": offset}]
    await pair.ask(DELETE_RECORDS, version, topics=[{"name": topic, "partitions": parts}], timeout=10_000)


@scenario(DELETE_RECORDS)
async def deletions_of_records(pair: Pair, version: int) -> None:
    topic = f"deletions-{version}"
    await _filled(pair, topic)
    for partition, offset in ((0, 0), (0, 2), (0, 1), (0, 99), (0, -5), (0, -1), (0, -1), (7, 0)):
        await _delete(pair, version, topic, partition, offset)
    for name in ("nowhere", "bad name"):
        await _delete(pair, version, name, 0, 0)
