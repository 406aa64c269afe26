"""Reading a segment by ranges gives the right records with the fewest requests, and `Corrupt` for any damage."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.storage.record_tables import WEB, record_table

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.object_store import ObjectStore, StoredObject
from tidelog.storage.parquet.parquet_format import RowGroup
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_codec import decode_segment_footer, encode_segment
from tidelog.storage.segments.segment_reader import ROW_GROUP_CACHE_BYTES, SegmentReader
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

ID = "ab" * 16
OFFSETS = [offset for offset in range(100, 40_100) if not 20_000 <= offset < 20_500]
"""Compaction removed these records."""
MIB = 1 << 20


def large_table() -> pa.Table:
    """Five row groups that do not compress."""
    noise = random.Random(1)
    return record_table(OFFSETS, [(None, noise.randbytes(1_000), None) for _ in OFFSETS])


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return large_table()


@pytest.fixture(scope="module")
def encoded(table: pa.Table) -> tuple[Segment, bytes]:
    made = encode_segment("web", WEB, table, ID)
    return made.segment, bytes(made.body)


@pytest.fixture
async def store(encoded: tuple[Segment, bytes]) -> CountingObjectStore:
    store = CountingObjectStore(MemoryObjectStore())
    await store.create(encoded[0].key, encoded[1])
    return store


@pytest.fixture
def segment(encoded: tuple[Segment, bytes]) -> Segment:
    return encoded[0]


@pytest.mark.parametrize("offset", [0, 100, 101, 8_000, 20_000, 20_499, 20_500, 30_001, 40_099])
async def test_records_from_an_offset_on_are_those_that_follow(
    store: ObjectStore, segment: Segment, table: pa.Table, offset: int
) -> None:
    records = await SegmentReader(store).read(segment, offset, bytes_max=MIB)
    first = next(row for row, there in enumerate(OFFSETS) if there >= offset)
    assert records.num_rows > 0
    assert records.equals(table.slice(first, records.num_rows))
    assert records.schema.equals(RECORD_SCHEMA)


async def test_nothing_is_left_beyond_the_last_offset(store: ObjectStore, segment: Segment) -> None:
    assert (await SegmentReader(store).read(segment, 40_100)).num_rows == 0


async def test_a_whole_segment_is_read_in_small_steps_that_meet_and_each_row_group_is_fetched_once(
    store: CountingObjectStore, segment: Segment, table: pa.Table
) -> None:
    reader, offset, parts = SegmentReader(store), 0, []
    before = store.usage()
    while (records := await reader.read(segment, offset, bytes_max=1)).num_rows:
        parts.append(records)
        offset = records["offset"][-1].as_py() + 1
    spent = store.usage() - before
    groups = row_groups(segment, await store.get(segment.key))
    assert len(parts) > 2 * len(groups)
    assert spent.requests() == 1 + len(groups)
    assert pa.concat_tables(parts).equals(table)


async def test_a_time_that_was_looked_up_is_read_from_without_another_request(
    store: CountingObjectStore, segment: Segment
) -> None:
    reader = SegmentReader(store)
    offset = await reader.find_offset_by_timestamp(segment, 15_000_000)
    assert offset == 15_000
    before = store.usage()
    records = await reader.read(segment, offset, bytes_max=MIB)
    assert records["offset"][0].as_py() == 15_000
    assert (store.usage() - before).requests() == 0


async def test_row_groups_are_kept_up_to_a_bound(store: ObjectStore, segment: Segment) -> None:
    reader = SegmentReader(store)
    for offset in range(100, 40_000, 7_000):
        await reader.read(segment, offset, bytes_max=1)
        assert 0 < reader.row_groups.currsize <= ROW_GROUP_CACHE_BYTES


def row_groups(segment: Segment, stored: StoredObject) -> tuple[RowGroup, ...]:
    return decode_segment_footer(segment.key, stored.data, segment.size_bytes).row_groups


async def test_a_cold_read_takes_two_requests_and_a_warm_one_takes_one(
    store: CountingObjectStore, segment: Segment
) -> None:
    reader = SegmentReader(store)
    before = store.usage()
    await reader.read(segment, 100, bytes_max=1)
    cold = store.usage() - before
    assert cold.requests() == cold.requests(Verb.GET) == 2
    before = store.usage()
    await reader.read(segment, 15_000, bytes_max=1)
    assert (store.usage() - before).requests() == 1


async def test_only_the_row_groups_that_are_needed_are_fetched(store: CountingObjectStore, segment: Segment) -> None:
    reader = SegmentReader(store)
    await reader.read(segment, 100, bytes_max=1)
    before = store.usage()
    await reader.read(segment, 15_000, bytes_max=1)
    received = (store.usage() - before).total().received_bytes
    groups = row_groups(segment, await store.get(segment.key))
    assert received == groups[1].end - groups[1].start < segment.size_bytes / 2


async def test_a_small_segment_comes_whole_in_one_request() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    small = encode_segment("web", WEB, record_table(range(50)), ID)
    await store.create(small.segment.key, small.body)
    before = store.usage()
    records = await SegmentReader(store).read(small.segment, 20)
    assert (store.usage() - before).requests() == 1
    assert records.equals(record_table(range(20, 50)))


async def test_the_first_offset_at_a_time_is_found(store: ObjectStore, segment: Segment) -> None:
    reader = SegmentReader(store)
    found = [await reader.find_offset_by_timestamp(segment, ms) for ms in (0, 100_000, 100_001, 20_100_000, 40_099_000)]
    assert found == [100, 100, 101, 20_500, 40_099]
    assert await reader.find_offset_by_timestamp(segment, 40_099_001) is None


async def test_times_that_do_not_ascend_give_the_first_offset_that_is_late_enough() -> None:
    store = MemoryObjectStore()
    records = record_table(range(4))
    times = pa.array([5, 9, 2, 9], RECORD_SCHEMA.field("timestamp").type)
    made = encode_segment("web", WEB, records.set_column(1, RECORD_SCHEMA.field("timestamp"), times), ID)
    await store.create(made.segment.key, made.body)
    reader = SegmentReader(store)
    assert [await reader.find_offset_by_timestamp(made.segment, ms) for ms in (1, 6, 9)] == [0, 1, 1]
    assert await reader.find_offset_by_timestamp(made.segment, 10) is None


async def test_footers_are_kept_up_to_a_bound() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    made = [encode_segment("web", WEB, record_table(range(n, n + 5)), ID) for n in range(0, 40, 5)]
    for each in made:
        await store.create(each.segment.key, each.body)
    reader = SegmentReader(store, footer_cache_bytes=4_000)
    for each in made:
        await reader.read(each.segment, 0)
    assert 0 < reader.footers.currsize <= 4_000
    assert 0 < len(reader.footers) < len(made)
    before = store.usage()
    await reader.read(made[-1].segment, 0)
    await reader.read(made[0].segment, 0)
    assert (store.usage() - before).requests() == 2


async def test_a_segment_that_is_gone_is_not_found(segment: Segment) -> None:
    with pytest.raises(NotFound):
        await SegmentReader(MemoryObjectStore()).read(segment, 100)


async def test_a_segment_of_another_size_than_its_manifest_says_is_corrupt(
    store: ObjectStore, segment: Segment
) -> None:
    with pytest.raises(Corrupt, match="its manifest says") as caught:
        await SegmentReader(store).read(replace(segment, size_bytes=segment.size_bytes - 1), 100)
    assert caught.value.name == segment.key


async def test_a_flip_in_a_row_group_affects_only_readers_of_that_group(encoded: tuple[Segment, bytes]) -> None:
    segment, body = encoded
    store = MemoryObjectStore()
    middle = len(body) // 2
    await store.create(segment.key, body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :])
    reader = SegmentReader(store)
    assert (await reader.read(segment, 100, bytes_max=1)).num_rows > 0
    with pytest.raises(Corrupt, match="row group") as caught:
        await reader.read(segment, 20_000, bytes_max=1)
    assert caught.value.name == segment.key


async def test_a_flip_in_the_footer_is_noticed(encoded: tuple[Segment, bytes]) -> None:
    segment, body = encoded
    store = MemoryObjectStore()
    await store.create(segment.key, body[:-300] + bytes([body[-300] ^ 1]) + body[-299:])
    with pytest.raises(Corrupt, match="footer"):
        await SegmentReader(store).read(segment, 100)
