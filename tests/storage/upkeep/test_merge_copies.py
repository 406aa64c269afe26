"""A merge that is in a hurry copies the row groups that are large enough, and encodes the rest; the records are the
same, in the same order, for us and for other readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.storage.record_tables import payloads, record_table
from tests.storage.upkeep.merge_scenes import (
    AT_ONCE,
    PLACE,
    add,
    is_empty,
    log_of,
    manifest_of,
    merger,
    records_at,
    records_of,
    segments_of,
    topic_of,
)

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_format import decode_footer
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep import run_rewrite
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL

LARGE = pa.concat_tables([record_table([at], [(b"k%d" % (at % 7), b"%04d" % at * 400, None)]) for at in range(700)])
"""More raw bytes than a row group needs to be copied."""


def large(first: int) -> pa.Table:
    return LARGE.set_column(0, LARGE.schema.field("offset"), pa.array(range(first, first + 700), pa.int64()))


async def fill(store: ObjectStore) -> None:
    """Two runs with two large partitions and three small ones."""
    for first in (0, 700):
        few = {at: records_at(at, range(first, first + 9)) for at in (1, 3, 4)}
        await add(store, {**few, 0: large(first), 2: large(first)}, own_groups=True)


async def merged(
    store: ObjectStore, folder: Path, *, load: Load = Load.BUSY, rules: UpkeepRules = AT_ONCE
) -> Sequence[TopicSegment]:
    assert await merger(store, folder, load=load).run(PLACE, log_of(store), rules)
    return await segments_of(store)


async def checksums(store: ObjectStore, segments: Sequence[TopicSegment]) -> list[tuple[tuple[int, int], int]]:
    """Partitions and checksum of each row group."""
    found = []
    for segment in segments:
        body = (await store.get(segment.key)).data
        groups = decode_footer(segment.key, SEGMENT_FLAVOR, body, len(body)).row_groups
        found += [(group.bounds[0], group.crc32) for group in groups]
    return found


async def test_large_row_groups_are_copied_and_small_ones_share_new_ones(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await fill(store)
    before, stored = await records_of(store), await checksums(store, await segments_of(store))
    found = await checksums(store, await merged(store, tmp_path))
    assert [partitions for partitions, _ in found] == [(0, 0), (0, 0), (1, 1), (2, 2), (2, 2), (3, 4)]
    copied = [one for one in found if one[0] in {(0, 0), (2, 2)}]
    assert sorted(copied) == sorted(one for one in stored if one[0] in {(0, 0), (2, 2)})
    assert await records_of(store) == before
    assert is_empty(tmp_path)


@pytest.mark.parametrize("load", [Load.QUIET, Load.IDLE])
async def test_without_hurry_a_final_segment_is_compressed_for_years(load: Load, tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await fill(store)
    before, stored = await records_of(store), await checksums(store, await segments_of(store))
    assert not {*stored} & {*await checksums(store, await merged(store, tmp_path, load=load))}
    assert await records_of(store) == before


@pytest.mark.parametrize("load", list(Load))
async def test_the_last_level_is_written_by_the_load(load: Load, tmp_path: Path) -> None:
    """Without an index of pages only while other work needs the processor."""
    store = MemoryObjectStore()
    await fill(store)
    (segment,) = await merged(store, tmp_path, load=load)
    body = (await store.get(segment.key)).data
    footer = decode_footer(segment.key, SEGMENT_FLAVOR, body, len(body))
    assert (segment.level, footer.index_crc32 is None) == (FINAL_LEVEL, load is Load.BUSY)


async def test_a_segment_with_a_bloom_filter_is_encoded(tmp_path: Path) -> None:
    """Indexes lie outside the row groups."""
    store = MemoryObjectStore()
    await fill(store)
    before, stored = await records_of(store), await checksums(store, await segments_of(store))
    found = await checksums(store, await merged(store, tmp_path, rules=replace(AT_ONCE, key_bloom_filter=True)))
    assert not {*stored} & {*found}
    assert await records_of(store) == before


async def test_dead_spans_are_left_out_of_a_copy(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await fill(store)
    before, log = await records_of(store), log_of(store)
    state = structs.replace((await topic_of(store)).partition(0), log_start_offset=700)
    change = TopicChange(PLACE.topic, partitions={0: state})
    await log.append(ManifestChange(ChangeKind.DELETE_RECORDS, {PLACE.topic_id: change}), await log.latest())
    await merged(store, tmp_path)
    assert await records_of(store) == {**before, 0: before[0].slice(700)}


@pytest.mark.parametrize("place", [0.2, 0.5])
async def test_a_damaged_row_group_is_not_copied(place: float, tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await fill(store)
    manifest, segment = await manifest_of(store), (await segments_of(store))[1]
    body = bytearray((await store.get(segment.key)).data)
    body[int(len(body) * place)] ^= 1
    await store.put(segment.key, bytes(body))
    with pytest.raises(Corrupt, match="does not have its checksum"):
        await merged(store, tmp_path)
    assert await manifest_of(store) == manifest


async def test_other_readers_read_a_copy_and_prune_by_its_statistics(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "bucket")
    await fill(store)
    before = await records_of(store)
    (segment,) = await merged(store, tmp_path / "spill")
    await store.aclose()
    path = tmp_path / "bucket" / segment.key
    table = pq.read_table(path, page_checksum_verification=True, partitioning=None, filters=[("partition", "==", 2)])
    assert table["value"].equals(before[2]["value"])
    query = f'SELECT count(*), max("offset") FROM read_parquet(\'{path}\') WHERE partition = 2 AND "offset" >= 700'
    assert duckdb.sql(query).fetchone() == (700, 1_399)


runs = st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 5), min_size=1), min_size=2, max_size=6)


@given(
    data=st.data(),
    runs=runs,
    own=st.lists(st.booleans(), min_size=6, max_size=6),
    copied_min=st.sampled_from([1, 700, 1 << 20]),
    memory_bytes=st.sampled_from([1_000, 1 << 24]),
    segment_bytes=st.sampled_from([1, 4_000, 1 << 27]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_reading_everything_gives_the_same_before_and_after(
    tmp_path: Path,
    data: st.DataObject,
    runs: list[dict[int, int]],
    own: list[bool],
    copied_min: int,
    memory_bytes: int,
    segment_bytes: int,
) -> None:
    """For any records, of which any row groups are copied."""
    store = MemoryObjectStore()
    ends: defaultdict[int, int] = defaultdict(int)
    for counts, own_groups in zip(runs, own, strict=False):
        parts = {}
        for partition, count in counts.items():
            rows = data.draw(st.lists(payloads, min_size=count, max_size=count))
            parts[partition] = record_table(range(ends[partition], ends[partition] + count), rows)
            ends[partition] += count
        await add(store, parts, own_groups=own_groups)
    before, rules = await records_of(store), replace(AT_ONCE, segment_bytes=segment_bytes)
    limits, merges = UpkeepLimits(memory_bytes=memory_bytes), 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_rewrite, "COPIED_BYTES_MIN", copied_min)
        task = merger(store, tmp_path, limits=limits, load=Load.BUSY)
        while await task.run(PLACE, log_of(store), rules):
            merges += 1
    assert merges
    assert await records_of(store) == before
    assert is_empty(tmp_path)
