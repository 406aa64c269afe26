"""Merging: the same records in the same order, in larger segments that any reader can open."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from demo.events import EventStream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.storage.archive_scenes import NEVER, CrashingStore, keys
from tests.storage.record_tables import payloads, record_table
from tests.storage.upkeep.memory_peaks import Peaks, peaks
from tests.storage.upkeep.merge_scenes import (
    AT_ONCE,
    PLACE,
    add,
    encoded,
    filled,
    is_empty,
    log_of,
    manifest_of,
    merge,
    merger,
    records_at,
    records_of,
    segments_of,
    stored,
    topic_of,
)

from tidelog.storage.errors import Conflict, Corrupt, Unavailable
from tidelog.storage.layout import shard_segment_id
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import Body, ByteRange, ObjectStore, StoredObject
from tidelog.storage.records import RECORD_SCHEMA, STORED_SCHEMA
from tidelog.storage.segments.topic_segment import decode_topic_segment
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.spill_file import SpillFile
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL

MIB = 1 << 20


def events(count: int, first: int = 0) -> pa.Table:
    """JSON events with offsets from `first` on."""
    chunks = list(EventStream(7).chunks(count))
    columns = [
        pa.array(range(first, first + count), pa.int64()),
        pa.chunked_array([chunk.timestamps for chunk in chunks]),
        pa.chunked_array([chunk.keys for chunk in chunks]),
        pa.chunked_array([chunk.values for chunk in chunks]),
        pa.nulls(count, RECORD_SCHEMA.field("headers").type),
    ]
    return pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)


def moved(records: pa.Table, first: int) -> pa.Table:
    """`records` with offsets from `first` on."""
    offsets = pa.array(range(first, first + records.num_rows), pa.int64())
    return records.set_column(0, RECORD_SCHEMA.field("offset"), offsets)


# ---- what it does


async def test_small_runs_become_one_and_the_manifest_names_the_inputs(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    before, records, topic = await segments_of(store), await records_of(store), await topic_of(store)
    after = await merge(store, tmp_path)
    assert after == await manifest_of(store)
    assert after is not None
    assert after.recorded is not None
    assert after.recorded.kind is ChangeKind.MERGE
    (segment,) = after.topics[PLACE.topic_id].segments
    assert (segment.level, segment.run, segment.archived_at_ms) == (FINAL_LEVEL, 3, 1)
    assert [(span.partition, span.base_offset, span.records) for span in segment.spans] == [
        (0, 0, 6),
        (1, 0, 6),
        (2, 0, 5),
    ]
    assert segment.raw_bytes == sum(one.raw_bytes for one in before)
    assert (segment.min_timestamp_ms, segment.max_timestamp_ms) == (0, 5_000)
    assert after.topics[PLACE.topic_id].all_partitions == topic.all_partitions
    assert [garbage.key for garbage in after.garbage] == [one.key for one in before]
    assert await records_of(store) == records


async def test_each_small_input_costs_one_request(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store, [{0: 2, 4: 3}] * 7)
    counting = CountingGets(store)
    await merge(counting, tmp_path)
    assert counting.gets == 7


async def test_nothing_due_appends_nothing(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    assert await merge(store, tmp_path) is None
    await filled(store)
    assert await merge(store, tmp_path, rules=UpkeepRules()) is None
    assert (await manifest_of(store)).version == 3


async def test_a_fan_in_becomes_a_run_of_level_1_which_is_merged_once_more(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store, [{0: 2}] * 40)
    rules = UpkeepRules(segment_bytes=400_000)  # 1.3 KB each: a fan-in of about 18
    for first in (80, 120):
        assert await merge(store, tmp_path, seed=first, rules=rules)
        assert (await segments_of(store))[-1].level == 1
        for offset in range(first, first + 40, 2):
            await add(store, {0: records_at(0, [offset, offset + 1])})
    assert await records_of(store) == {0: records_at(0, range(160))}
    assert await merge(store, tmp_path)
    assert [segment.level for segment in await segments_of(store)] == [FINAL_LEVEL]
    assert await records_of(store) == {0: records_at(0, range(160))}


async def test_a_run_of_several_segments_is_merged_as_a_whole(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    for first in (0, 3):
        await add(store, {at: records_at(at, range(first, first + 3)) for at in range(6)}, split=lambda at: at // 2)
    assert len(await segments_of(store)) == 6
    records = await records_of(store)
    assert await merge(store, tmp_path)
    (segment,) = await segments_of(store)
    assert len(segment.spans) == 6
    assert await records_of(store) == records


async def moved_log_start(store: ObjectStore, partition: int, offset: int) -> None:
    log, topic = log_of(store), await topic_of(store)
    state = structs.replace(topic.partition(partition), log_start_offset=offset)
    change = TopicChange(PLACE.topic, partitions={partition: state})
    await log.append(ManifestChange(ChangeKind.DELETE_RECORDS, {PLACE.topic_id: change}), await log.latest())


async def test_spans_below_their_log_start_are_left_out(tmp_path: Path) -> None:
    """Partition 1 lies below its log start in the first run, and across it in the third."""
    store = MemoryObjectStore()
    await filled(store)
    await moved_log_start(store, 1, 3)
    assert await merge(store, tmp_path)
    (segment,) = await segments_of(store)
    spans = [(span.partition, span.base_offset, span.records) for span in segment.spans]
    assert spans == [(0, 0, 6), (1, 2, 4), (2, 0, 5)]
    assert (await records_of(store))[1].equals(records_at(1, range(2, 6)))


async def test_runs_of_which_nothing_lives_are_dropped(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store, [{0: 3}, {0: 2}])
    await moved_log_start(store, 0, 5)
    after = await merge(store, tmp_path)
    assert after is not None
    assert await segments_of(store) == []
    assert len(after.garbage) == 2


async def test_the_archiver_continues_while_segments_are_merged(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    records = await records_of(store)
    assert await merge(Growing(store), tmp_path)
    assert [(segment.run, segment.level) for segment in await segments_of(store)] == [(3, FINAL_LEVEL), (4, 0)]
    assert await records_of(store) == records | {7: records_at(7, range(5))}


async def test_runs_on_both_sides_of_the_clean_end_are_merged_apart(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await add(store, {0: records_at(0, [0, 2, 5]), 1: records_at(1, [3])}, clean=True)
    await add(store, {0: records_at(0, [7, 9])}, clean=True)
    await add(store, {0: records_at(0, range(10, 12)), 1: records_at(1, [4])})
    await add(store, {1: records_at(1, range(5, 8))})
    before = await records_of(store)
    assert await merge(store, tmp_path)
    assert await merge(store, tmp_path, seed=1)
    assert await merge(store, tmp_path, seed=2) is None
    assert [segment.run for segment in await segments_of(store)] == [1, 3]
    assert await records_of(store) == before


_runs = st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 5), min_size=1), min_size=2, max_size=8)


@given(
    data=st.data(),
    runs=_runs,
    memory_bytes=st.sampled_from([1_000, 1 << 24]),
    segment_bytes=st.sampled_from([1, 4_000, 1 << 27]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_reading_everything_gives_the_same_before_and_after(
    tmp_path: Path, data: st.DataObject, runs: list[dict[int, int]], memory_bytes: int, segment_bytes: int
) -> None:
    """For any records, any runs, any gaps from compaction, any memory, and segments of any size."""
    store = MemoryObjectStore()
    totals: defaultdict[int, int] = defaultdict(int)
    for counts in runs:
        for partition, count in counts.items():
            totals[partition] += count
    offsets = {
        partition: sorted(data.draw(st.sets(st.integers(0, 3 * total), min_size=total, max_size=total)))
        for partition, total in totals.items()
    }
    for counts in runs:
        parts = {}
        for partition, count in counts.items():
            taken, offsets[partition] = offsets[partition][:count], offsets[partition][count:]
            rows = data.draw(st.lists(payloads, min_size=count, max_size=count))
            parts[partition] = record_table(taken, rows)
        await add(store, parts, clean=True)
    before = await records_of(store)
    rules = replace(AT_ONCE, segment_bytes=segment_bytes)
    limits = UpkeepLimits(memory_bytes=memory_bytes)
    merges = 0
    while await merger(store, tmp_path, limits=limits, seed=merges).run(PLACE, log_of(store), rules):
        merges += 1
    segments = await segments_of(store)
    assert merges
    assert memory_bytes < 1 << 20 or len({segment.run for segment in segments}) == 1 or segment_bytes < 1 << 20
    assert await records_of(store) == before
    assert is_empty(tmp_path)


async def test_a_thousand_partitions_of_twenty_runs(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    for run in range(20):
        await add(store, {at: records_at(at, range(4 * run, 4 * run + 4)) for at in range(1_000)})
    assert await merge(store, tmp_path)
    (segment,) = await segments_of(store)
    found = decode_topic_segment(segment, PLACE, (await store.get(segment.key)).data)
    assert found.equals(stored({at: records_at(at, range(80)) for at in range(1_000)}))


# ---- the sizes of row groups and segments


async def test_large_partitions_have_row_groups_of_their_own_and_small_ones_share(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    large = events(6_000)  # 2.3 MB
    for first in (0, 6_000):
        small = {at: records_at(at, range(first, first + 50)) for at in (1, 2, 3, 5, 6)}
        await add(store, small | {0: moved(large, first), 4: moved(large, first)})
    assert await merge(store, tmp_path)
    (segment,) = await segments_of(store)
    metadata = pq.read_metadata(pa.BufferReader((await store.get(segment.key)).data))
    bounds = [metadata.row_group(at).column(0).statistics for at in range(metadata.num_row_groups)]
    assert [(at.min, at.max) for at in bounds] == [(0, 0), (1, 3), (4, 4), (5, 6)]


async def test_a_run_is_split_at_segment_bytes_and_where_a_partition_fills_a_segment(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await add(store, {at: events(80_000) for at in range(3)})  # 31 MB each, 3.8 MB as stored
    assert await merge(store, tmp_path, rules=UpkeepRules(segment_bytes=5_000_000))
    segments = await segments_of(store)
    assert [[span.partition for span in segment.spans] for segment in segments] == [[0], [1], [2]]
    assert {(segment.run, segment.level) for segment in segments} == {(0, FINAL_LEVEL)}
    smaller = MemoryObjectStore()
    await add(smaller, {0: events(80_000)})
    assert await merge(smaller, tmp_path, rules=UpkeepRules(segment_bytes=1_000_000))
    sizes = [segment.size_bytes for segment in await segments_of(smaller)]
    assert len(sizes) >= 2
    assert all(1_000_000 <= size < 2_300_000 for size in sizes[:-1])
    assert sizes[-1] >= 250_000
    assert (await records_of(smaller))[0].equals((await records_of(store))[0])


async def test_a_busy_machine_compresses_quickly(tmp_path: Path) -> None:
    sizes = {}
    for load in (Load.QUIET, Load.BUSY):
        store = MemoryObjectStore()
        for first in (0, 20_000):
            await add(store, {0: events(20_000, first)})
        task = merger(store, tmp_path, load=load)
        assert await task.run(PLACE, log_of(store), AT_ONCE)
        sizes[load] = sum(segment.size_bytes for segment in await segments_of(store))
    assert sizes[Load.QUIET] < 0.95 * sizes[Load.BUSY]


# ---- memory


async def peaks_of_a_merge(folder: Path, records: pa.Table, partitions: int) -> Peaks:
    """The memory of merging four runs of `records`, an equal part in each partition."""
    store = LocalObjectStore(folder / "bucket")
    count = records.num_rows // partitions
    for run in range(4):
        await add(store, {at: moved(records.slice(at * count, count), run * count) for at in range(partitions)})
    with peaks() as found:
        limits = UpkeepLimits(memory_bytes=64 * MIB)
        assert await merger(store, folder / "spill", limits=limits).run(PLACE, log_of(store), AT_ONCE)
    (segment,) = await segments_of(store)
    metadata = pq.read_metadata(folder / "bucket" / segment.key)
    sizes = [metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)]
    assert all(4 * MIB < size <= 16 * MIB for size in sizes[:-1])
    assert len(sizes) > 5
    await store.aclose()
    return found


async def test_memory_does_not_follow_the_size_of_segments(tmp_path: Path) -> None:
    records = events(150_000)  # 59 MB
    small = await peaks_of_a_merge(tmp_path / "small", records.slice(0, 60_000), 2)
    large = await peaks_of_a_merge(tmp_path / "large", records, 2)
    many = await peaks_of_a_merge(tmp_path / "many", records.slice(0, 60_000), 300)
    assert large.arrow_bytes < 1.25 * small.arrow_bytes
    for found in (small, large, many):
        assert found.arrow_bytes < 96 * MIB
        assert found.python_bytes < 20 * MIB


# ---- damage


async def damaged(kind: str, store: MemoryObjectStore) -> None:
    """Break the second of four segments."""
    segment = (await segments_of(store))[1]
    body = bytearray((await store.get(segment.key)).data)
    if kind == "missing":
        await store.delete(segment.key)
    elif kind == "flipped":
        body[len(body) // 3] ^= 1
        await store.put(segment.key, bytes(body))
    elif kind == "truncated":
        await store.put(segment.key, bytes(body[:-7]))
    else:
        forged = stored({0: record_table([3], [(b"k0", b"3 on 0", None)])})
        made = encoded(forged, shard_segment_id(segment.key), segment.run)
        assert (made.segment.key, made.segment.size_bytes) == (segment.key, segment.size_bytes)
        await store.put(segment.key, made.body)


@pytest.mark.parametrize("kind", ["missing", "flipped", "truncated", "swapped"])
async def test_a_damaged_input_is_corrupt_and_nothing_is_changed(kind: str, tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    before = await manifest_of(store)
    await damaged(kind, store)
    there = await keys(store, "topics/")
    with pytest.raises(Corrupt):
        await merge(store, tmp_path)
    assert await manifest_of(store) == before
    assert await keys(store, "topics/") == there
    assert is_empty(tmp_path)


async def test_an_input_that_left_meanwhile_is_a_conflict_and_not_corrupt(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    with pytest.raises(Conflict, match="left the manifest"):
        await merge(Expiring(store), tmp_path)
    assert len(await segments_of(store)) == 3


# ---- a merge that ends early


def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The errors of finalizers from now on."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(repr(unraisable.exc_value)))
    return seen


async def test_a_cancelled_merge_leaves_no_writer_that_writes_to_a_closed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled at each of its requests: before the first row group is written, and after it."""
    store = MemoryObjectStore()
    for first in (0, 6_000):
        await add(store, {at: moved(events(6_000), first) for at in range(4)}, split=lambda at: at)
    before, seen = await manifest_of(store), unraisable(monkeypatch)
    for request in range(1, 9):
        stalling = Stalling(store, request)
        task = asyncio.create_task(merge(stalling, tmp_path))
        await stalling.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task, stalling
        gc.collect()
    assert (seen, await manifest_of(store), is_empty(tmp_path)) == ([], before, True)


async def test_a_full_disk_leaves_no_writer_that_writes_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    for first in (0, 6_000):
        await add(store, {at: moved(events(6_000), first) for at in range(2)})
    seen, written = unraisable(monkeypatch), SpillFile.write

    def full(file: SpillFile, data: bytes | memoryview) -> int:
        if file.tell() > 100_000 and not file.closed:
            raise Unavailable("no space")
        return written(file, data)

    monkeypatch.setattr(SpillFile, "write", full)
    with pytest.raises(Unavailable, match="no space"):
        await merge(store, tmp_path)
    gc.collect()
    assert seen == []


# ---- other readers


async def merged_events(folder: Path, *, bloom: bool = False) -> Path:
    """A final segment on disk, with 60,000 events in each of two partitions."""
    store = LocalObjectStore(folder / "bucket")
    for first in range(0, 60_000, 20_000):
        await add(store, {4: events(20_000, first), 5: events(20_000, first)})
    rules = replace(AT_ONCE, key_bloom_filter=bloom)
    assert await merge(store, folder / "spill", rules=rules)
    (segment,) = await segments_of(store)
    await store.aclose()
    return folder / "bucket" / segment.key


async def test_pyarrow_and_pandas_read_and_prune_a_merged_segment(tmp_path: Path) -> None:
    path = await merged_events(tmp_path)
    table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
    assert table.schema.equals(STORED_SCHEMA)
    assert table["value"].slice(20_000, 20_000).equals(events(20_000)["value"])
    fragment = next(iter(ds.dataset(path).get_fragments()))
    asked = (pc.field("partition") == 5) & (pc.field("offset") >= 59_990)
    assert len(fragment.split_by_row_group()) > len(fragment.split_by_row_group(asked)) == 1
    frame = pd.read_parquet(path, filters=[("partition", "==", 5), ("offset", ">=", 59_990)])
    assert frame["offset"].tolist() == list(range(59_990, 60_000))


async def test_duckdb_reads_and_prunes_a_merged_segment(tmp_path: Path) -> None:
    path = await merged_events(tmp_path, bloom=True)
    found = duckdb.sql(
        f'SELECT count(*), min("offset"), max("offset") FROM read_parquet(\'{path}\') WHERE partition = 4'
    ).fetchone()
    assert found == (60_000, 0, 59_999)
    key = events(20_000)["key"][-1].as_py()
    same = duckdb.execute("SELECT count(*) FROM read_parquet(?) WHERE key = ?", [str(path), key]).fetchone()
    assert same is not None
    assert same[0] >= 6
    chunks = duckdb.sql(f"SELECT path_in_schema, bloom_filter_offset FROM parquet_metadata('{path}')").fetchall()
    assert all((offset is not None) == (column == "key") for column, offset in chunks)


async def test_pages_have_an_index_and_final_segments_are_smaller(tmp_path: Path) -> None:
    path = await merged_events(tmp_path)
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert {name for name, column in columns.items() if column.has_column_index} == {"partition", "offset", "timestamp"}
    assert all(column.has_offset_index for column in columns.values())
    level_0 = encoded(stored({4: events(20_000)}), "ab" * 16, 0)
    assert path.stat().st_size < 0.9 * 6 * len(level_0.body)


# ---- stores


class WatchedStore(CrashingStore):
    """Calls hooks before reads and uploads of segments."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.bucket = inner

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        if key.startswith("topics/"):
            await self.before_read(key)
        return await super().get(key, byte_range)

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        await self.before_upload()
        return await super().put(key, data, if_version=if_version)

    async def before_read(self, key: str) -> None:
        """Called before a segment is read."""

    async def before_upload(self) -> None:
        """Called before a merged segment is uploaded."""


class CountingGets(WatchedStore):
    """Counts the requests that read segments."""

    gets = 0

    async def before_read(self, key: str) -> None:
        self.gets += 1


class Stalling(WatchedStore):
    """A read of a segment, the one with the number `at`, is never answered."""

    def __init__(self, inner: ObjectStore, at: int) -> None:
        super().__init__(inner)
        self.left = at
        self.reached = asyncio.Event()

    async def before_read(self, key: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            await asyncio.Event().wait()


class Growing(WatchedStore):
    """The archiver adds a run during the merge."""

    async def before_upload(self) -> None:
        await add(self.bucket, {7: records_at(7, range(5))})


class Expiring(WatchedStore):
    """Retention removes the oldest segment during the merge, and its grace passes."""

    expired = False

    async def before_read(self, key: str) -> None:
        if not self.expired:
            self.expired = True
            log = log_of(self.bucket)
            oldest = (await segments_of(self.bucket))[0]
            change = TopicChange(PLACE.topic, removed=(oldest.key,))
            await log.append(ManifestChange(ChangeKind.EXPIRE, {PLACE.topic_id: change}), await log.latest())
            await self.bucket.delete(oldest.key)
