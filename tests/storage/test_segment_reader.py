"""Reading a segment by ranges gives the right records with the fewest requests, and `Corrupt` for any damage."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pyarrow as pa
import pytest
from msgspec import structs
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import made_segment, span_in

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_format import RowGroup, decode_footer
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_reader import ROW_GROUP_CACHE_BYTES, SegmentReader
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

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
def encoded(table: pa.Table) -> tuple[FoundSpan, bytes]:
    made = made_segment({0: table})
    return span_in(made.segment, 0), bytes(made.body)


@pytest.fixture
async def store(encoded: tuple[FoundSpan, bytes]) -> CountingObjectStore:
    store = CountingObjectStore(MemoryObjectStore())
    await store.create(encoded[0].segment.key, encoded[1])
    return store


@pytest.fixture
def found(encoded: tuple[FoundSpan, bytes]) -> FoundSpan:
    return encoded[0]


@pytest.mark.parametrize("offset", [0, 100, 101, 8_000, 20_000, 20_499, 20_500, 30_001, 40_099])
async def test_records_from_an_offset_on_are_those_that_follow(
    store: ObjectStore, found: FoundSpan, table: pa.Table, offset: int
) -> None:
    records = await SegmentReader(store).read(found, offset, bytes_max=MIB)
    first = next(row for row, there in enumerate(OFFSETS) if there >= offset)
    assert records.num_rows > 0
    assert records.equals(table.slice(first, records.num_rows))
    assert records.schema.equals(RECORD_SCHEMA)


async def test_nothing_is_left_beyond_the_last_offset(store: ObjectStore, found: FoundSpan) -> None:
    assert (await SegmentReader(store).read(found, 40_100)).num_rows == 0


async def test_a_whole_segment_is_read_in_small_steps_that_meet_and_each_row_group_is_fetched_once(
    store: CountingObjectStore, found: FoundSpan, table: pa.Table
) -> None:
    reader, offset, parts = SegmentReader(store), 0, []
    before = store.usage()
    while (records := await reader.read(found, offset, bytes_max=1)).num_rows:
        parts.append(records)
        offset = records["offset"][-1].as_py() + 1
    spent = store.usage() - before
    groups = await row_groups(store, found)
    assert len(parts) > 2 * len(groups)
    assert spent.requests() == 1 + len(groups)
    assert pa.concat_tables(parts).equals(table)


async def test_a_time_that_was_looked_up_is_read_from_without_another_request(
    store: CountingObjectStore, found: FoundSpan
) -> None:
    reader = SegmentReader(store)
    offset = await reader.find_offset_by_timestamp(found, 15_000_000)
    assert offset == 15_000
    before = store.usage()
    records = await reader.read(found, offset, bytes_max=MIB)
    assert records["offset"][0].as_py() == 15_000
    assert (store.usage() - before).requests() == 0


async def test_row_groups_are_kept_up_to_a_bound(store: ObjectStore, found: FoundSpan) -> None:
    reader = SegmentReader(store)
    for offset in range(100, 40_000, 7_000):
        await reader.read(found, offset, bytes_max=1)
        assert 0 < reader.row_groups.currsize <= ROW_GROUP_CACHE_BYTES


async def row_groups(store: ObjectStore, found: FoundSpan) -> tuple[RowGroup, ...]:
    key, data = found.segment.key, (await store.get(found.segment.key)).data
    return decode_footer(key, SEGMENT_FLAVOR, data, len(data)).row_groups


async def test_a_cold_read_takes_two_requests_and_a_warm_one_takes_one(
    store: CountingObjectStore, found: FoundSpan
) -> None:
    reader = SegmentReader(store)
    before = store.usage()
    await reader.read(found, 100, bytes_max=1)
    cold = store.usage() - before
    assert cold.requests() == cold.requests(Verb.GET) == 2
    before = store.usage()
    await reader.read(found, 15_000, bytes_max=1)
    assert (store.usage() - before).requests() == 1


async def test_only_the_row_groups_that_are_needed_are_fetched(store: CountingObjectStore, found: FoundSpan) -> None:
    reader = SegmentReader(store)
    await reader.read(found, 100, bytes_max=1)
    before = store.usage()
    await reader.read(found, 15_000, bytes_max=1)
    received = (store.usage() - before).total().received_bytes
    groups = await row_groups(store, found)
    assert received == groups[1].end - groups[1].start < found.segment.size_bytes / 2


async def test_a_small_segment_comes_whole_in_one_request() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    small = made_segment({0: record_table(range(50))})
    await store.create(small.segment.key, small.body)
    before = store.usage()
    records = await SegmentReader(store).read(span_in(small.segment, 0), 20)
    assert (store.usage() - before).requests() == 1
    assert records.equals(record_table(range(20, 50)))


async def test_the_first_offset_at_a_time_is_found(store: ObjectStore, found: FoundSpan) -> None:
    reader = SegmentReader(store)
    times = (0, 100_000, 100_001, 20_100_000, 40_099_000)
    first = [await reader.find_offset_by_timestamp(found, ms) for ms in times]
    assert first == [100, 100, 101, 20_500, 40_099]
    assert await reader.find_offset_by_timestamp(found, 40_099_001) is None


async def test_times_that_do_not_ascend_give_the_first_offset_that_is_late_enough() -> None:
    store = MemoryObjectStore()
    records = record_table(range(4))
    times = pa.array([5, 9, 2, 9], RECORD_SCHEMA.field("timestamp").type)
    made = made_segment({0: records.set_column(1, RECORD_SCHEMA.field("timestamp"), times)})
    await store.create(made.segment.key, made.body)
    reader, found = SegmentReader(store), span_in(made.segment, 0)
    assert [await reader.find_offset_by_timestamp(found, ms) for ms in (1, 6, 9)] == [0, 1, 1]
    assert await reader.find_offset_by_timestamp(found, 10) is None
    assert await reader.find_offset_by_timestamp(found, 6, offset=2) == 3


async def test_footers_are_kept_up_to_a_bound() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    made = [made_segment({0: record_table(range(n, n + 5))}, number=n) for n in range(0, 40, 5)]
    for each in made:
        await store.create(each.segment.key, each.body)
    reader = SegmentReader(store, footer_cache_bytes=4_000)
    for each in made:
        await reader.read(span_in(each.segment, 0), 0)
    assert 0 < reader.footers.currsize <= 4_000
    assert 0 < len(reader.footers) < len(made)
    before = store.usage()
    await reader.read(span_in(made[-1].segment, 0), 0)
    await reader.read(span_in(made[0].segment, 0), 0)
    assert (store.usage() - before).requests() == 2


async def test_a_segment_that_is_gone_is_not_found(found: FoundSpan) -> None:
    with pytest.raises(NotFound):
        await SegmentReader(MemoryObjectStore()).read(found, 100)


async def test_a_segment_of_another_size_than_its_manifest_says_is_corrupt(
    store: ObjectStore, found: FoundSpan
) -> None:
    other = structs.replace(found.segment, size_bytes=found.segment.size_bytes - 1)
    with pytest.raises(Corrupt, match="its manifest says") as caught:
        await SegmentReader(store).read(replace(found, segment=other), 100)
    assert caught.value.name == found.segment.key


async def test_a_flip_in_a_row_group_affects_only_readers_of_that_group(encoded: tuple[FoundSpan, bytes]) -> None:
    found, body = encoded
    store = MemoryObjectStore()
    middle = len(body) // 2
    await store.create(found.segment.key, body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :])
    reader = SegmentReader(store)
    assert (await reader.read(found, 100, bytes_max=1)).num_rows > 0
    with pytest.raises(Corrupt, match="row group") as caught:
        await reader.read(found, 20_000, bytes_max=1)
    assert caught.value.name == found.segment.key


async def test_a_flip_in_the_footer_is_noticed(encoded: tuple[FoundSpan, bytes]) -> None:
    found, body = encoded
    store = MemoryObjectStore()
    await store.create(found.segment.key, body[:-300] + bytes([body[-300] ^ 1]) + body[-299:])
    with pytest.raises(Corrupt, match="footer"):
        await SegmentReader(store).read(found, 100)


# ---- row groups that partitions share


SHARED = {3: range(50, 150), 4: range(7_000, 7_300), 9: range(10, 4_000)}


async def shared_store(ends: list[int] | None = None) -> tuple[CountingObjectStore, dict[int, FoundSpan]]:
    """A segment of three partitions. `ends`: where its row groups end; None: it has one."""
    made = made_segment({number: record_table(offsets) for number, offsets in SHARED.items()}, ends=ends)
    store = CountingObjectStore(MemoryObjectStore())
    await store.create(made.segment.key, made.body)
    return store, {number: span_in(made.segment, number) for number in SHARED}


@pytest.mark.parametrize("ends", [None, [30, 200, 390, 400, 4_390]], ids=["one row group", "cut anywhere"])
@pytest.mark.parametrize("bytes_max", [1, 1 << 24], ids=["a few", "all"])
async def test_a_partition_between_two_others_gets_only_its_own_records(ends: list[int] | None, bytes_max: int) -> None:
    store, spans = await shared_store(ends)
    reader = SegmentReader(store)
    for number, offsets in SHARED.items():
        parts, offset = [], 0
        while (records := await reader.read(spans[number], offset, bytes_max=bytes_max)).num_rows:
            parts.append(records)
            offset = records["offset"][-1].as_py() + 1
        assert pa.concat_tables(parts).equals(record_table(offsets))


async def test_the_first_offset_at_a_time_is_found_among_neighbours_that_are_later() -> None:
    store, spans = await shared_store([120, 4_390])
    reader = SegmentReader(store)
    for number, offsets in SHARED.items():
        times = (0, offsets[33] * 1_000 - 1)
        first = [await reader.find_offset_by_timestamp(spans[number], ms) for ms in times]
        assert first == [offsets[0], offsets[33]]
        assert await reader.find_offset_by_timestamp(spans[number], offsets[-1] * 1_000 + 1) is None


async def neighbours(count: int, records: int) -> tuple[CountingObjectStore, TopicSegment, dict[int, pa.Table]]:
    """A segment of partitions that share one row group, and their records, which do not compress."""
    noise, numbers = random.Random(1), range(records)
    tables = {
        number: record_table(numbers, [(None, noise.randbytes(1_000), None) for _ in numbers])
        for number in range(count)
    }
    made = made_segment(tables, ends=[count * records])
    store = CountingObjectStore(MemoryObjectStore())
    await store.create(made.segment.key, made.body)
    return store, made.segment, tables


@pytest.mark.parametrize("at_once", [False, True], ids=["one after the other", "at once"])
async def test_neighbours_in_a_row_group_cost_one_request(at_once: bool) -> None:
    store, segment, tables = await neighbours(10, 500)
    reader = SegmentReader(store)
    if at_once:
        found = await asyncio.gather(*(reader.read(span_in(segment, number), 0) for number in tables))
    else:
        found = [await reader.read(span_in(segment, number), 0) for number in tables]
    assert all(records.equals(table) for records, table in zip(found, tables.values(), strict=True))
    assert store.usage().requests(Verb.GET) == 2, "the footer and one row group"


async def test_a_row_group_is_decoded_whole_only_for_a_second_partition_of_it() -> None:
    store, segment, tables = await neighbours(10, 500)
    reader = SegmentReader(store)
    for offset in (0, 100, 200):
        await reader.read(span_in(segment, 4), offset, records_max=1)
    assert not reader.decoded
    for offset in (0, 321):
        records = await reader.read(span_in(segment, 5), offset, records_max=1)
        assert records.equals(tables[5].slice(offset, records.num_rows))
    assert len(reader.decoded) == 1
    true = span_in(segment, 5)
    with pytest.raises(Corrupt, match="another partition"):
        await reader.read(replace(true, first_row=true.first_row + 1), 0)


async def test_a_few_records_do_not_keep_the_memory_of_their_row_group() -> None:
    store, segment, _ = await neighbours(100, 80)
    reader = SegmentReader(store)
    for number in (3, 4, 5):
        records = await reader.read(span_in(segment, number), 0)
        assert records.num_rows == 80
        assert records.get_total_buffer_size() < 2 * records.nbytes


async def test_a_replay_of_one_of_a_thousand_partitions_reads_its_own_bytes_and_at_most_two_shared_row_groups() -> None:
    noise = random.Random(1)
    tables = {number: record_table(range(4), [(None, noise.randbytes(500), None)] * 4) for number in range(1_000)}
    tables[500] = record_table(range(4_000), [(None, noise.randbytes(500), None) for _ in range(4_000)])
    ends = [1_000, 2_100, 4_000, 5_900, 6_500, 7_996]  # the partition has rows 2,000 to 6,000
    made = made_segment(tables, ends=ends)
    store = CountingObjectStore(MemoryObjectStore())
    await store.create(made.segment.key, made.body)
    reader, found = SegmentReader(store), span_in(made.segment, 500)
    await reader.read(found, 0, records_max=1)
    groups, before = await row_groups(store, found), store.usage()
    assert (await SegmentReader(store).read(found, 0)).equals(tables[500])
    received = (store.usage() - before).total().received_bytes
    assert received <= groups[4].end - groups[1].start + made.segment.size_bytes - groups[-1].end + 64_000 + 48_000


@pytest.mark.parametrize("seed", range(12))
async def test_any_spans_and_row_groups_give_what_was_written(seed: int) -> None:
    draw = random.Random(seed)
    tables = {}
    for number in draw.sample(range(20), draw.randint(1, 5)):
        thinned = draw.choice([0.0, 0.0, 0.6])
        offsets = [n for n in range(draw.randint(0, 50), draw.randint(60, 900)) if draw.random() >= thinned] or [3]
        tables[number] = record_table(offsets)
    rows = sum(table.num_rows for table in tables.values())
    made = made_segment(tables, ends=[*sorted(draw.sample(range(1, rows), min(rows - 1, draw.randint(0, 5)))), rows])
    store = MemoryObjectStore()
    await store.create(made.segment.key, made.body)
    reader = SegmentReader(store)
    for number, table in tables.items():
        found, offsets = span_in(made.segment, number), table["offset"].to_pylist()
        for _ in range(8):
            offset, bytes_max = draw.randint(0, offsets[-1] + 2), draw.choice([1, 1_000, 1 << 24])
            records = await reader.read(found, offset, bytes_max=bytes_max, records_max=draw.choice([1, 10, 2**62]))
            left = [each for each in offsets if each >= offset]
            assert bool(left) == bool(records.num_rows)
            assert records.equals(table.slice(len(offsets) - len(left), records.num_rows))
            at = draw.randint(0, offsets[-1] + 1)
            late = next((each for each in offsets if each >= at), None)
            assert await reader.find_offset_by_timestamp(found, at * 1_000) == late


async def test_a_row_group_of_another_partition_than_the_manifest_says_is_corrupt() -> None:
    store, spans = await shared_store([100, 400, 4_390])
    lie = replace(spans[4], first_row=0, span=structs.replace(spans[4].span, records=100))
    with pytest.raises(Corrupt, match="another partition"):
        await SegmentReader(store).read(lie, 0)


async def test_a_segment_with_other_spans_than_its_manifest_says_is_corrupt() -> None:
    store, spans = await shared_store()
    segment = spans[3].segment
    moved = structs.replace(segment, spans=(structs.replace(segment.spans[0], base_offset=51), *segment.spans[1:]))
    with pytest.raises(Corrupt, match="other records than its manifest says"):
        await SegmentReader(store).read(replace(spans[3], segment=moved), 50)
