"""A rewrite of a whole topic in parts that different processes make: the same records, in one version."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.storage.archive_scenes import ManualClock
from tests.storage.upkeep.compaction_scenes import Topic
from tests.storage.upkeep.merge_scenes import (
    LIMITS,
    PLACE,
    add,
    filled,
    log_of,
    manifest_of,
    merge,
    records_at,
    records_of,
    segments_of,
)

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_upload import ShardUpload
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.split_rewrite import made_part
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL
from tidelog.storage.upkeep.whole_rewrite import WholeRewrite, planned

MERGES = UpkeepRules()
COMPACTS = UpkeepRules(deletes=False, compacts=True)
NOW_MS = 10**12


async def plan(
    store: ObjectStore, folder: Path, rules: UpkeepRules = MERGES, part_bytes: int = 1
) -> tuple[WholeRewrite | None, int]:
    """A rewrite in many small parts, and the version that it was planned in."""
    log = log_of(store)
    manifest = await log.with_lists(await log.latest(), [PLACE.topic_id])
    rewriter = Rewriter(store, Runtime(ManualClock()), LIMITS, None, folder)
    return await planned(rewriter, PLACE, manifest, rules, NOW_MS, part_bytes=part_bytes), manifest.version


async def make(store: ObjectStore, rewrite: WholeRewrite, folder: Path, seed: int = 0) -> list[list[TopicSegment]]:
    """Each part by a process of its own."""
    return [
        await made_part(
            store, Runtime(ManualClock(), SeededEntropy(seed + number)), PLACE, part, rewrite.flavor,
            level=rewrite.level, segment_bytes=1 << 20, memory_bytes=16 << 20, spill_folder=folder,
        )
        for number, part in enumerate(rewrite.parts)
    ]  # fmt: skip


async def append(store: ObjectStore, rewrite: WholeRewrite, made: list[list[TopicSegment]], seen: int) -> ShardManifest:
    uploads = ShardUpload(store, Runtime(ManualClock()), LIMITS.grace_s)
    return await uploads.append_uploaded(log_of(store), PLACE.topic_id, rewrite.successor(made), seen)


@pytest.mark.parametrize("part_bytes", [1, 40, 10**9])
async def test_parts_together_hold_each_record_once_as_one_final_run(tmp_path: Path, part_bytes: int) -> None:
    store = MemoryObjectStore()
    await filled(store)
    records, versions = await records_of(store), (await manifest_of(store)).version
    rewrite, seen = await plan(store, tmp_path, part_bytes=part_bytes)
    assert rewrite is not None
    assert len(rewrite.parts) == {1: 6, 40: 3, 10**9: 1}[part_bytes]
    after = await append(store, rewrite, await make(store, rewrite, tmp_path), seen)
    assert after.version == versions + 1
    segments = await segments_of(store)
    assert {(segment.run, segment.level) for segment in segments} == {(3, FINAL_LEVEL)}
    assert len(segments) == len(rewrite.parts)
    assert await records_of(store) == records
    assert (await plan(store, tmp_path))[0] is None


async def test_runs_that_the_archiver_adds_meanwhile_stay(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    rewrite, seen = await plan(store, tmp_path)
    assert rewrite is not None
    made = await make(store, rewrite, tmp_path)
    await add(store, {0: records_at(0, range(6, 9)), 5: records_at(5, range(2))})
    records = await records_of(store)
    await append(store, rewrite, made, seen)
    assert await records_of(store) == records
    assert [segment.level for segment in await segments_of(store)][-1] == 0


async def test_a_part_that_two_attempts_made_counts_once(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    records = await records_of(store)
    rewrite, seen = await plan(store, tmp_path)
    assert rewrite is not None
    await make(store, rewrite, tmp_path, seed=100)
    await append(store, rewrite, await make(store, rewrite, tmp_path), seen)
    assert await records_of(store) == records


async def test_a_worker_that_was_faster_makes_it_start_over(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    rewrite, seen = await plan(store, tmp_path)
    assert rewrite is not None
    made = await make(store, rewrite, tmp_path)
    merged = await merge(store, tmp_path)
    with pytest.raises(Conflict):
        await append(store, rewrite, made, seen)
    assert await manifest_of(store) == merged


async def test_uploads_that_a_sweep_may_have_deleted_are_not_named(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    rewrite, seen = await plan(store, tmp_path)
    assert rewrite is not None
    made = await make(store, rewrite, tmp_path)
    log = log_of(store)
    await log.append(ManifestChange(ChangeKind.SWEEP), await log.latest())
    records = await records_of(store)
    with pytest.raises(Conflict, match="sweep"):
        await append(store, rewrite, made, seen)
    assert await records_of(store) == records


async def test_a_lost_answer_to_the_append_is_no_second_version(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    rewrite, seen = await plan(store, tmp_path)
    assert rewrite is not None
    made = await make(store, rewrite, tmp_path)
    once = await append(store, rewrite, made, seen)
    with pytest.raises(Conflict):
        await append(store, rewrite, made, seen)
    assert (await manifest_of(store)).version == once.version


async def test_spans_below_the_log_start_go(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    await filled(store)
    log = log_of(store)
    latest = await log.with_lists(await log.latest(), [PLACE.topic_id])
    state = replace(latest.topics[PLACE.topic_id].partition(0), log_start_offset=3)
    deletes = TopicChange(PLACE.topic, partitions={0: state})
    await log.append(ManifestChange(ChangeKind.DELETE_RECORDS, {PLACE.topic_id: deletes}), latest)
    rewrite, seen = await plan(store, tmp_path)
    assert rewrite is not None
    await append(store, rewrite, await make(store, rewrite, tmp_path), seen)
    assert (await records_of(store))[0]["offset"].to_pylist() == [3, 4, 5]


async def test_compaction_leaves_the_newest_record_of_each_key(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for at in range(4):
        await topic.append({0: [(b"k%d" % (n % 3), b"%d" % (at * 10 + n)) for n in range(6)], 1: [(b"only", b"1")]})
    rewrite, seen = await plan(topic.store, tmp_path, COMPACTS)
    assert rewrite is not None
    assert rewrite.kind is ChangeKind.COMPACT
    await append(topic.store, rewrite, await make(topic.store, rewrite, tmp_path), seen)
    await topic.check()
    assert await topic.offsets(0) == [21, 22, 23]
    assert await topic.offsets(1) == [3]
    assert (await topic.partition(0)).clean_end == 24
    again, _ = await plan(topic.store, tmp_path, COMPACTS)
    assert again is None or again.kind is ChangeKind.MERGE
