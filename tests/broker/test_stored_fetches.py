"""Fetches that take stored row groups: at the leader, and at a broker that reads the bucket itself."""

from __future__ import annotations

import io
import random

import pyarrow.parquet as pq
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.cluster_world import running_world
from tests.broker.drafts import draft, offsets_of
from tests.broker.part_reads import BYTES_MAX

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.cluster.cluster_broker import ClusterBroker
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.parquet.row_group_extract import extracted_file
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.stores.memory import MemoryObjectStore

COUNT, SIZE = 400, 1_000
STORED = FetchLimits(1_000_000, BYTES_MAX, stored=True)


async def fill(broker: LocalBroker | ClusterBroker, partitions: int = 2) -> None:
    """Archived records, and ten hot ones in each partition."""
    noise = random.Random(4)
    await broker.create_topic(ANYBODY, "t", partitions, {})
    for count in (COUNT, 10):
        for number in range(partitions):
            values: list[bytes | None] = [noise.randbytes(SIZE) for _ in range(count)]
            await broker.produce(ANYBODY, "t", draft(values), ProduceOptions(partition=number))
        if count == COUNT:
            await broker.archive_now()


async def fetch(broker: Broker, offsets: dict[int, int], limits: FetchLimits = STORED) -> list[FetchedPart]:
    parts = [FetchPart("t", number, offset, BYTES_MAX) for number, offset in offsets.items()]
    return list(await broker.fetch_parts(ANYBODY, parts, limits))


def read(answer: FetchedPart) -> tuple[list[int], bool]:
    """The offsets of an answer, and whether they are in stored row groups."""
    assert answer.fetched is not None
    assert answer.error is None
    stored = answer.fetched.stored
    if stored is None:
        return offsets_of(answer.fetched), False
    assert not answer.fetched.batches
    assert stored.next_offset == answer.fetched.next_offset
    file = pq.ParquetFile(io.BytesIO(b"".join(extracted_file(STORED_SCHEMA, [stored.extracted()]))))
    return [offset for offset in file.read()["offset"].to_pylist() if offset >= stored.offset], True


async def test_archived_partitions_are_stored_and_hot_ones_are_not() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await fill(broker)
        cold, hot = await fetch(broker, {0: 17, 1: COUNT})
        assert read(cold) == (list(range(17, COUNT)), True)
        assert read(hot) == (list(range(COUNT, COUNT + 10)), False)
        (usual,) = await fetch(broker, {0: 17}, FetchLimits(1_000_000, BYTES_MAX))
        assert read(usual) == (list(range(17, COUNT + 10)), False)


async def test_partitions_that_do_not_fit_are_left_for_the_next_fetch() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await fill(broker, 3)
        limits = FetchLimits(2 * COUNT, BYTES_MAX, stored=True)
        answers = await fetch(broker, dict.fromkeys(range(3), 0), limits)
        found = [read(answer)[0] for answer in answers]
        assert 0 < sum(map(len, found)) <= 2 * COUNT
        for answer, offsets in zip(answers, found, strict=True):
            assert offsets == list(range(len(offsets)))
            assert answer.next_offset == len(offsets)


async def test_many_partitions_come_as_row_groups_and_none_in_small_pieces() -> None:
    """More partitions than row groups fit into an answer: those that do not fit come first in the next fetch."""
    async with running_broker(MemoryObjectStore()) as broker:
        await fill(broker, 6)
        limits = FetchLimits(1_000_000, 3 * COUNT * (SIZE + 50), stored=True)
        at = dict.fromkeys(range(6), 0)
        for _ in range(6):
            answers = await fetch(broker, at, limits)
            found = {answer.part.partition: read(answer) for answer in answers}
            assert all(is_stored for offsets, is_stored in found.values() if offsets)
            done = {number for number, (offsets, _) in found.items() if offsets == list(range(COUNT))}
            assert done
            at = {number: offset for number, offset in at.items() if number not in done}
            if not at:
                return
    raise AssertionError(f"partitions {sorted(at)} were not read")


async def test_a_broker_that_does_not_lead_hands_out_what_it_reads_from_the_bucket() -> None:
    async with running_world(dict.fromkeys(("a", "b"), MemoryObjectStore()), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await fill(a)
        assert [read(answer) for answer in await fetch(b, {0: 5, 1: COUNT + 3})] == [
            (list(range(5, COUNT)), True),
            (list(range(COUNT + 3, COUNT + 10)), False),
        ]
