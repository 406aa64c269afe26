"""Merged segments: the sizes of their row groups, the memory that a merge takes, and other readers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from tests.storage.upkeep.memory_peaks import Peaks, peaks
from tests.storage.upkeep.merge_scenes import (
    AT_ONCE,
    PLACE,
    add,
    encoded,
    events,
    log_of,
    merge,
    merger,
    moved,
    records_at,
    records_of,
    segments_of,
    stored,
)

from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL

MIB = 1 << 20


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


async def test_the_less_a_process_has_to_do_the_better_it_compresses(tmp_path: Path) -> None:
    sizes = {}
    for load in Load:
        store = MemoryObjectStore()
        for first in (0, 20_000):
            await add(store, {0: events(20_000, first)})
        task = merger(store, tmp_path, load=load)
        assert await task.run(PLACE, log_of(store), AT_ONCE)
        sizes[load] = sum(segment.size_bytes for segment in await segments_of(store))
    assert sizes[Load.QUIET] < 0.95 * sizes[Load.BUSY]
    assert sizes[Load.IDLE] < 0.99 * sizes[Load.QUIET]


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
