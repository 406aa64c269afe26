"""Merging: the same records in the same order, in larger segments that any reader can open."""

from __future__ import annotations

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
from tests.storage.archive_scenes import NEVER, CrashingStore, keys
from tests.storage.record_tables import WEB, payloads, record_table
from tests.storage.upkeep.merge_scenes import (
    AT_ONCE,
    PLACE,
    add,
    filled,
    is_empty,
    manifest_log,
    manifest_of,
    merge,
    merger,
    records_of,
)

from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.object_store import Body, ByteRange, ObjectStore, StoredObject
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_codec import SEGMENT_FLAVOR, describe_segment, encode_segment
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep import merge as merge_module
from tidelog.storage.upkeep.merge_plan import FINAL_LEVEL
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules

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


# ---- what it does


async def test_small_segments_become_one_and_the_manifest_names_the_inputs(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    records = await filled(store)
    before = await manifest_of(store)
    after = await merge(store, tmp_path)
    assert after == await manifest_of(store)
    assert after is not None
    assert after.change is not None
    (segment,) = after.segments
    assert (segment.level, segment.archived_at_ms, after.cold_end) == (FINAL_LEVEL, 1, before.cold_end)
    said = describe_segment(segment.key, (await store.get(segment.key)).data)
    assert replace(said, level=FINAL_LEVEL, archived_at_ms=1) == segment
    assert segment.raw_bytes == sum(one.raw_bytes for one in before.segments)
    assert after.change.kind is ChangeKind.MERGE
    assert after.change.removed == tuple(one.sha256 for one in before.segments)
    assert [garbage.key for garbage in after.garbage] == [one.key for one in before.segments]
    assert (await records_of(store)).equals(records)


async def test_each_input_costs_one_request(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store, [5] * 7)
    counting = CountingGets(store)
    await merge(counting, tmp_path)
    assert counting.gets == 7


async def test_nothing_due_appends_nothing(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    assert await merge(store, tmp_path) is None
    await filled(store)
    assert await merge(store, tmp_path, rules=UpkeepRules()) is None
    assert (await manifest_of(store)).version == 3


async def test_a_fan_in_becomes_a_segment_of_level_1_which_is_merged_once_more(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store, [2] * 40)
    rules = UpkeepRules(segment_bytes=400_000)  # 1.3 KB each: a fan-in of about 18
    for first in (80, 120):
        after = await merge(store, tmp_path, seed=first, rules=rules)
        assert after is not None
        assert after.segments[-1].level == 1
        for offset in range(first, first + 40, 2):
            await add(store, record_table([offset, offset + 1]))
    records = record_table(range(160))
    assert (await records_of(store)).equals(records)
    final = await merge(store, tmp_path)
    assert final is not None
    assert [segment.level for segment in final.segments] == [FINAL_LEVEL]
    assert (await records_of(store)).equals(records)


async def test_the_archiver_continues_while_segments_are_merged(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    after = await merge(Growing(store), tmp_path)
    assert after is not None
    assert [segment.level for segment in after.segments] == [FINAL_LEVEL, 0]
    assert (await records_of(store)).equals(record_table(range(15)))


async def test_segments_on_both_sides_of_the_clean_end_are_merged_apart(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await add(store, record_table([0, 2, 5]))
    await add(store, record_table([7, 9]), clean_end=10)
    await add(store, record_table(range(10, 12)))
    await add(store, record_table(range(12, 15)))
    before = await records_of(store)
    assert await merge(store, tmp_path)
    after = await merge(store, tmp_path, seed=1)
    assert after is not None
    assert [(one.base_offset, one.last_offset) for one in after.segments] == [(0, 9), (10, 14)]
    assert (await records_of(store)).equals(before)


_cuts = st.lists(st.integers(1, 6), min_size=2, max_size=12)


@given(data=st.data(), cuts=_cuts, read_bytes=st.sampled_from([300, 2_000, 1 << 24]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_reading_everything_gives_the_same_before_and_after(
    tmp_path: Path, data: st.DataObject, cuts: list[int], read_bytes: int
) -> None:
    """For any records, any segments, any gaps from compaction, and read requests of any size."""
    store = MemoryObjectStore()
    total = sum(cuts)
    offsets = sorted(data.draw(st.sets(st.integers(0, 3 * total), min_size=total, max_size=total)))
    rows = data.draw(st.lists(payloads, min_size=total, max_size=total))
    at = 0
    for count in cuts:
        await add(store, record_table(offsets[at : at + count], rows[at : at + count]), clean_end=offsets[-1] + 1)
        at += count
    before = await records_of(store)
    limits = UpkeepLimits(memory_bytes=read_bytes * merge_module.READ_SHARE)
    after = await merger(store, tmp_path, limits=limits).run(PLACE, manifest_log(store), AT_ONCE)
    assert after is not None
    assert len(after.segments) == 1
    assert (await records_of(store)).equals(before)
    assert is_empty(tmp_path)


# ---- memory


async def test_memory_does_not_follow_the_size_of_segments(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "bucket")
    records = events(60_000)  # about 24 MB
    for at in range(4):
        await add(store, replace_offsets(records, at * 60_000))
    limits = UpkeepLimits(memory_bytes=8 * MIB)
    held = HeldBytes(store)
    raw_bytes = (await manifest_of(store)).segments[0].raw_bytes * 4
    del records
    await merger(held, tmp_path / "spill", limits=limits).run(PLACE, manifest_log(store), AT_ONCE)
    assert raw_bytes > 90_000_000
    assert held.bytes_max - held.bytes_before < 48 * MIB
    (segment,) = (await manifest_of(store)).segments
    metadata = pq.read_metadata(tmp_path / "bucket" / segment.key)
    sizes = [metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)]
    assert len(sizes) > 5
    assert all(6 * MIB < size <= 16 * MIB for size in sizes)
    await store.aclose()


def replace_offsets(records: pa.Table, first: int) -> pa.Table:
    offsets = pa.array(range(first, first + records.num_rows), pa.int64())
    return records.set_column(0, RECORD_SCHEMA.field("offset"), offsets)


# ---- damage


async def damaged(kind: str, store: MemoryObjectStore) -> None:
    """Break the second of four segments."""
    segment = (await manifest_of(store)).segments[1]
    body = bytearray((await store.get(segment.key)).data)
    if kind == "missing":
        await store.delete(segment.key)
    elif kind == "flipped":
        body[len(body) // 3] ^= 1
        await store.put(segment.key, bytes(body))
    elif kind == "truncated":
        await store.put(segment.key, bytes(body[:-7]))
    else:
        sound = record_table([3], [(b"another", b"record", None)])
        made = encode_segment("web", WEB, sound, segment.key.rpartition("-")[2].removesuffix(".parquet"))
        assert made.segment.key == segment.key
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
    assert len((await manifest_of(store)).segments) == 3


# ---- other readers


async def merged_events(folder: Path, *, bloom: bool = False) -> Path:
    """A final segment of 60,000 events on disk; return its folder."""
    store = LocalObjectStore(folder / "bucket")
    for at in range(3):
        await add(store, events(20_000, at * 20_000))
    rules = replace(AT_ONCE, key_bloom_filter=bloom)
    after = await merge(store, folder / "spill", rules=rules)
    assert after is not None
    await store.aclose()
    return folder / "bucket" / after.segments[0].key


async def test_pyarrow_and_pandas_read_and_prune_a_merged_segment(tmp_path: Path) -> None:
    path = await merged_events(tmp_path)
    table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
    assert table.schema.remove_metadata().equals(RECORD_SCHEMA)
    assert table["value"].slice(20_000, 20_000).equals(events(20_000)["value"])
    fragment = next(iter(ds.dataset(path).get_fragments()))
    assert len(fragment.split_by_row_group()) > len(fragment.split_by_row_group(pc.field("offset") >= 59_990)) == 1
    frame = pd.read_parquet(path, filters=[("offset", ">=", 59_990)])
    assert frame["offset"].tolist() == list(range(59_990, 60_000))


async def test_duckdb_reads_and_prunes_a_merged_segment(tmp_path: Path) -> None:
    path = await merged_events(tmp_path, bloom=True)
    found = duckdb.sql(f'SELECT count(*), min("offset"), max("offset") FROM read_parquet(\'{path}\')').fetchone()
    assert found == (60_000, 0, 59_999)
    key = events(20_000)["key"][-1].as_py()
    same = duckdb.execute("SELECT count(*) FROM read_parquet(?) WHERE key = ?", [str(path), key]).fetchone()
    assert same is not None
    assert same[0] >= 3
    chunks = duckdb.sql(f"SELECT path_in_schema, bloom_filter_offset FROM parquet_metadata('{path}')").fetchall()
    assert all((offset is not None) == (column == "key") for column, offset in chunks)


async def test_pages_have_an_index_and_final_segments_are_smaller(tmp_path: Path) -> None:
    path = await merged_events(tmp_path)
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert {name for name, column in columns.items() if column.has_column_index} == {"offset", "timestamp"}
    assert all(column.has_offset_index for column in columns.values())
    level_0 = encode_segment("web", WEB, events(20_000), "ab" * 16, SEGMENT_FLAVOR)
    assert path.stat().st_size < 0.9 * 3 * len(level_0.body)


# ---- stores


class WatchedStore(CrashingStore):
    """Calls hooks before reads and uploads of segments."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.bucket = inner

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        if key.endswith(".parquet"):
            await self.before_read(key)
        return await super().get(key, byte_range)

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        await self.before_upload()
        return await super().put(key, data, if_version=if_version)

    async def before_read(self, key: str) -> None:
        """Called before a segment is read."""

    async def before_upload(self) -> None:
        """Called before the merged segment is uploaded."""


class CountingGets(WatchedStore):
    """Counts the requests that read segments."""

    gets = 0

    async def before_read(self, key: str) -> None:
        self.gets += 1


class Growing(WatchedStore):
    """The archiver adds five records during the merge."""

    async def before_upload(self) -> None:
        await add(self.bucket, record_table(range(10, 15)))


class Expiring(WatchedStore):
    """Retention removes the oldest segment during the merge, and its grace passes."""

    async def before_read(self, key: str) -> None:
        log = manifest_log(self.bucket)
        latest = await log.latest()
        if latest.log_start_offset == 0:
            oldest, *others = latest.segments
            kept = replace(latest, segments=tuple(others), log_start_offset=oldest.next_offset)
            await log.append(kept, ChangeKind.EXPIRE)
            await self.bucket.delete(oldest.key)


class HeldBytes(WatchedStore):
    """The most memory that Arrow held, measured before each request."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.bytes_before = self.bytes_max = pa.total_allocated_bytes()

    async def before_read(self, key: str) -> None:
        self.bytes_max = max(self.bytes_max, pa.total_allocated_bytes())

    async def before_upload(self) -> None:
        await self.before_read("")
