"""The broker reads ahead for a consumer that reads on, and not for a reader that looks up single records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import draft, offsets_of
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import made_segment, span_in

from tidelog.services.broker.api.fetch import Fetched, FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.read.segment_pieces import SegmentPieces
from tidelog.storage.errors import NotFound
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.object_store import ByteRange, StoredObject
from tidelog.storage.segments.segment_reader import READ_RECORDS_MAX, SegmentReader
from tidelog.storage.stores.counting import CountingObjectStore, Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

GROUPS, GROUP = 4, 8_000
"""A batch becomes an entry with one row group of records of a kilobyte, which the archiver copies."""
RECORDS = GROUPS * GROUP
MIB = 1 << 20
PAGE = FetchLimits(1_000_000, 8 * MIB)
PIECES_BYTES = 12 * MIB


@dataclass(frozen=True)
class Bucket:
    store: MemoryObjectStore
    found: FoundSpan


async def filled() -> Bucket:
    store, noise = MemoryObjectStore(), random.Random(6)
    async with running_broker(store, archiver_batch_bytes=1 << 30, archiver_upkeep=False) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for _ in range(GROUPS):
            values = [noise.randbytes(1_000) for _ in range(GROUP)]
            await broker.produce(ANYBODY, "t", draft(values), ProduceOptions(partition=0))
        await broker.archive_now()
        topic = broker.topic(ANYBODY, "t")
        state = await broker.shards.leading(topic.shards[0]).partitions.load(topic, 0)
        [found] = state.view.spans()
    return Bucket(store, found)


@pytest.fixture(scope="module")
def bucket() -> Bucket:
    return asyncio.run(filled())


@dataclass(frozen=True)
class Reading:
    broker: LocalBroker
    counting: CountingObjectStore

    def gets(self) -> int:
        return self.counting.usage().requests(Verb.GET, kind=Kind.SEGMENT)

    async def fetch(self, offset: int, limits: FetchLimits = PAGE) -> Fetched:
        return await self.broker.fetch(ANYBODY, "t", 0, offset, limits)


@asynccontextmanager
async def reading(bucket: Bucket, **changes: object) -> AsyncIterator[Reading]:
    counting = CountingObjectStore(bucket.store)
    async with running_broker(counting, archiver_upkeep=False, **changes) as broker:
        yield Reading(broker, counting)


async def test_while_a_page_is_sent_the_next_two_are_read(bucket: Bucket) -> None:
    async with reading(bucket) as there:
        first = await there.fetch(0)
        assert first.next_offset == GROUP
        assert there.gets() == 2, "a footer and a row group"
        second = await there.fetch(GROUP)
        assert second.next_offset == 2 * GROUP
        await until(lambda: there.gets() == 5)  # one for that page, two ahead of the next
        third = await there.fetch(2 * GROUP)
        assert offsets_of(third) == list(range(2 * GROUP, 3 * GROUP))
        assert (await there.fetch(3 * GROUP)).next_offset == RECORDS
        assert there.gets() == 5, "each row group is fetched once"


async def test_small_pages_of_a_replay_take_each_row_group_once(bucket: Bucket) -> None:
    async with reading(bucket) as there:
        offset, read = 0, 0
        while (page := await there.fetch(offset, FetchLimits(700, MIB))).next_offset > offset:
            assert offsets_of(page)[0] == offset
            read += len(offsets_of(page))
            offset = page.next_offset
        assert read == RECORDS
        assert there.gets() == 1 + 4


async def test_lookups_read_nothing_ahead(bucket: Bucket) -> None:
    async with reading(bucket) as there:
        for lookups, offset in enumerate((20_000, 100, 30_000, 12_000), start=1):
            await there.fetch(offset, FetchLimits(5, MIB))
            assert there.gets() == 1 + lookups


async def test_without_room_for_a_row_group_nothing_is_read_ahead(bucket: Bucket) -> None:
    async with reading(bucket, cache_max_bytes=32 * MIB) as there:
        for page in range(4):
            assert (await there.fetch(page * GROUP)).next_offset == (page + 1) * GROUP
            assert there.gets() == 2 + page


async def test_partitions_that_are_replayed_together_take_pieces_only_if_each_has_room(bucket: Bucket) -> None:
    for bytes_max, most in ((24 * MIB, 2), (64 * MIB, 3), (8 * MIB, 0)):
        pieces = SegmentPieces(SegmentReader(bucket.store), asyncio.Semaphore(4), bytes_max)
        assert [readers for readers in range(1, 9) if pieces.keeps_pieces(readers)] == list(range(1, most + 1))


async def test_pieces_are_kept_within_their_bound(bucket: Bucket) -> None:
    pieces = SegmentPieces(SegmentReader(bucket.store), asyncio.Semaphore(4), PIECES_BYTES)
    for offset in range(0, RECORDS, 1_700):
        await pieces.read(bucket.found, offset, pieces.piece_bytes, READ_RECORDS_MAX)
        assert 0 < pieces.held_bytes <= PIECES_BYTES


async def test_pieces_of_many_small_partitions_are_kept_within_their_bound_and_found() -> None:
    tables = {number: record_table(range(5)) for number in range(300)}
    made, store = made_segment(tables), MemoryObjectStore()
    await store.create(made.segment.key, made.body)
    pieces, bytes_max = SegmentPieces(SegmentReader(store), asyncio.Semaphore(4), 200_000), 200_000
    for number in tables:
        await pieces.read(span_in(made.segment, number), 0, 1 << 20, READ_RECORDS_MAX)
        assert pieces.held_bytes <= bytes_max
    found = {number: pieces.in_memory(span_in(made.segment, number), 3) for number in tables}
    kept = [number for number, records in found.items() if records is not None]
    assert kept == list(range(300 - len(kept), 300))
    assert 20 < len(kept) < 50, "a piece takes 4 KiB beside its records"
    assert all(records.equals(tables[0].slice(3)) for records in found.values() if records is not None)


class HeldStore(CountingObjectStore):
    """Holds back reads until the test releases them; `waiting` counts them."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        super().__init__(inner)
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.waiting = 0

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        self.waiting += 1
        await self.let_go.wait()
        self.waiting -= 1
        return await super().get(key, byte_range)


async def test_pieces_are_read_ahead_side_by_side(bucket: Bucket) -> None:
    held = HeldStore(bucket.store)
    pieces = SegmentPieces(SegmentReader(held), asyncio.Semaphore(4), 24 * MIB)
    await pieces.read(bucket.found, 0, pieces.piece_bytes, READ_RECORDS_MAX)
    held.let_go.clear()
    assert pieces.read_ahead(bucket.found, GROUP) == 2 * GROUP
    assert pieces.has_room()
    assert pieces.read_ahead(bucket.found, 2 * GROUP) == 3 * GROUP
    assert not pieces.has_room()
    await until(lambda: held.waiting == 2)
    assert pieces.read_ahead(bucket.found, 2 * GROUP) == 3 * GROUP, "it is under way, and not read twice"
    held.let_go.set()
    for group in (1, 2):
        place = group * GROUP
        await until(lambda place=place: pieces.in_memory(bucket.found, place) is not None)
        records = pieces.in_memory(bucket.found, place)
        assert records is not None
        assert records["offset"].to_pylist() == list(range(group * GROUP, (group + 1) * GROUP))
    assert held.usage().requests() == 2 + 2
    assert pieces.read_ahead(bucket.found, 3 * GROUP) == RECORDS == bucket.found.span.next_offset
    assert pieces.read_ahead(bucket.found, RECORDS) == RECORDS


async def test_a_second_piece_ahead_pushes_out_none_that_waits_for_its_reader(bucket: Bucket) -> None:
    pieces = SegmentPieces(SegmentReader(bucket.store), asyncio.Semaphore(4), PIECES_BYTES)
    assert pieces.has_room()
    assert pieces.read_ahead(bucket.found, 0) is None, "where it ends, the footer will say"
    assert not pieces.has_room(), "one is under way"
    await until(lambda: pieces.held_bytes > 0)
    assert not pieces.has_room(), "it is here, and nobody has asked for it"
    assert pieces.in_memory(bucket.found, 0) is not None
    await until(pieces.has_room)


async def test_consumers_at_several_places_have_each_row_group_read_once(bucket: Bucket) -> None:
    async with reading(bucket) as there:
        places, pages = {0: 0, GROUP: GROUP, 2 * GROUP: 2 * GROUP}, FetchLimits(1_500, 2 * MIB)
        while any(offset < RECORDS for offset in places.values()):
            for start, offset in places.items():
                page = await there.fetch(offset, pages)
                assert offsets_of(page) == list(range(offset, page.next_offset))
                places[start] = page.next_offset
        assert there.gets() <= 1 + 3 * 4, "at worst each consumer reads for itself"


async def test_nothing_is_read_ahead_while_all_reads_are_taken(bucket: Bucket) -> None:
    counting, reads = CountingObjectStore(bucket.store), asyncio.Semaphore(1)
    pieces = SegmentPieces(SegmentReader(counting), reads, PIECES_BYTES)
    async with reads:
        pieces.read_ahead(bucket.found, 0)
    assert (await pieces.read(bucket.found, 0, 1, 1)).num_rows > 0
    assert counting.usage().requests() == 2


async def test_a_failure_ahead_is_the_readers_to_see(bucket: Bucket) -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    pieces = SegmentPieces(SegmentReader(counting), asyncio.Semaphore(1), PIECES_BYTES)
    pieces.read_ahead(bucket.found, 0)
    await until(lambda: counting.usage().requests() == 1)
    with pytest.raises(NotFound):
        await pieces.read(bucket.found, 0, 1, 1)
