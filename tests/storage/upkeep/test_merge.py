"""Merging: the same records in the same order, in larger segments."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.storage.record_tables import payloads, record_table
from tests.storage.topic_segments import decode_topic_segment
from tests.storage.upkeep.merge_scenes import (
    AT_ONCE,
    PLACE,
    add,
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
from tests.storage.upkeep.watched_stores import CountingGets, Growing

from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL


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
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
