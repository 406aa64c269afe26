"""A shard that lost objects is repaired: the loss is recorded, all else is there byte for byte, and its history is one
chain."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.storage.archive_scenes import (
    GRACE_S,
    PLACES,
    GatedStore,
    archiver_of,
    keys,
    manifest_of,
    state_of,
)
from tests.storage.damage_by_hand import Harm, cut, delete, flip
from tests.storage.record_tables import SHOP, WEB, WEB_1
from tests.storage.repair_scenes import HELD, Damaged
from tests.storage.sweep_scenes import rewrite

from tidelog.storage.bucket.repair.bucket_repair import RepairPlan
from tidelog.storage.errors import Conflict
from tidelog.storage.layout import TOPICS_PREFIX
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind


@pytest.mark.parametrize("harm", [delete, flip, cut])
@pytest.mark.parametrize("seq", HELD)
async def test_a_lost_wal_entry(harm: Harm, seq: int) -> None:
    bucket = await Damaged().filled()
    await harm(bucket.store, bucket.scene.wal.key(seq))
    (repair,) = (await bucket.repaired()).shards
    assert list(repair.entries) == [seq]
    await bucket.check(HELD[seq])


async def test_several_lost_entries_in_a_row_and_apart() -> None:
    bucket = await Damaged().filled()
    for seq in (1, 2, 4):
        await bucket.store.delete(bucket.scene.wal.key(seq))
    await bucket.repaired()
    await bucket.check({WEB: range(6), WEB_1: range(4), SHOP: range(3)})


async def test_losses_and_the_floor_past_an_entry_at_it_are_one_version() -> None:
    bucket = await Damaged().filled(archived=1)
    await bucket.store.delete(bucket.scene.wal.key(4))
    before = (await bucket.scene.log.latest()).version
    await bucket.repaired()
    newest = await bucket.scene.log.latest()
    assert newest.recorded is not None
    assert (newest.version, newest.floor.number, newest.recorded.kind) == (before + 1, 5, ChangeKind.LOSE)
    await bucket.check(HELD[4])


@pytest.mark.parametrize("harm", [delete, flip, cut])
async def test_a_lost_segment_is_lost_for_all_its_partitions(harm: Harm) -> None:
    bucket = await Damaged().filled(archived=2)
    await harm(bucket.store, await bucket.key_of_segment(WEB))
    await bucket.repaired()
    await bucket.check({WEB: range(4), WEB_1: range(4)})


async def test_a_lost_segment_below_the_log_start_is_no_loss() -> None:
    bucket = await Damaged().filled(archived=2)
    state = replace(await state_of(bucket.store, SHOP), log_start_offset=2)
    begins = ManifestChange(ChangeKind.DELETE_RECORDS, {SHOP.topic_id: TopicChange("shop", partitions={0: state})})
    await bucket.scene.log.change([SHOP.topic_id], lambda manifest: begins)
    key = await bucket.key_of_segment(SHOP)
    await bucket.store.delete(key)
    await bucket.repaired()
    assert (await state_of(bucket.store, SHOP)).losses == ()
    assert key not in (await manifest_of(bucket.store)).topics[SHOP.topic_id].segments


async def test_a_lost_merged_segment_is_replaced_by_its_input() -> None:
    bucket = await Damaged().filled(archived=1)
    former = await bucket.key_of_segment(WEB)
    await rewrite(bucket.scene, bucket.store)
    merged = await bucket.key_of_segment(WEB)
    assert merged != former
    await bucket.store.delete(merged)
    await bucket.repaired()
    manifest = await manifest_of(bucket.store)
    assert [each.key for each in manifest.topics[WEB.topic_id].segments] == [former]
    assert former not in {each.key for each in manifest.garbage}, "or the collector would delete it"
    await bucket.check({})


@pytest.mark.parametrize("harm", [flip, cut])
@pytest.mark.parametrize("collected", [False, True])
async def test_a_damaged_newest_version_is_made_again_of_what_is_there(harm: Harm, collected: bool) -> None:
    bucket = await Damaged().filled(archived=2)
    if collected:
        await bucket.collect_log()
        await bucket.scene.append({WEB: 1}, epoch=2)
    key = bucket.scene.log.key(1)
    await harm(bucket.store, key)
    (repair,) = (await bucket.repaired()).shards
    assert (repair.newest_key, repair.after_version, repair.replaces) == (key, 0, 1)
    await bucket.check({})


async def test_a_lost_newest_version_is_made_again_of_what_is_there() -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    await bucket.scene.append({WEB: 1}, epoch=2)
    await bucket.store.delete(bucket.scene.log.key(1))
    await bucket.repaired()
    await bucket.check({})


async def test_what_only_a_damaged_version_and_lost_segments_had_is_recorded() -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    await bucket.scene.append(dict.fromkeys(PLACES, 1), epoch=2)
    segments = set(await keys(bucket.store, TOPICS_PREFIX))
    await flip(bucket.store, bucket.scene.log.key(1))
    (repair,) = (await bucket.repair().plan()).shards
    for topic in repair.topics:
        for segment in topic.added:
            assert segment.key in segments
            await bucket.store.delete(segment.key)
    await bucket.repaired()
    await bucket.check({WEB: range(4, 7), WEB_1: range(4, 6), SHOP: range(2, 4)})


# ---- what a repair refuses


async def test_a_manifest_without_a_readable_version_is_for_a_person() -> None:
    bucket = await Damaged().filled(archived=1)
    key = bucket.scene.log.key(0)
    await bucket.collect_log()
    await flip(bucket.store, key)
    plan = await bucket.repair().plan()
    assert (bool(plan), [finding.key for finding in plan.unsolved]) == (False, [key])
    await bucket.store.delete(key)
    plan = await bucket.repair().plan()
    assert (bool(plan), len(plan.unsolved)) == (False, 1)


async def test_an_entry_that_is_back_is_not_given_up() -> None:
    bucket = await Damaged().filled()
    key = bucket.scene.wal.key(4)
    data = (await bucket.store.get(key)).data
    await bucket.store.delete(key)
    plan = await bucket.repair().plan()
    await bucket.store.create(key, data)
    with pytest.raises(Conflict, match="can be read again"):
        await bucket.repair().apply(plan)


async def test_a_sound_bucket_has_nothing_to_repair_while_a_broker_archives_between_any_two_requests() -> None:
    pause, reached = 0, True
    while reached:
        bucket = await Damaged().filled(archived=1)
        gated = GatedStore(bucket.store, pause)
        planning = asyncio.create_task(bucket.repair(gated).plan())
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([planning, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        archiver = archiver_of(bucket.scene, bucket.store, seed=5)
        await archiver.run_once()
        bucket.scene.clock.now_s += GRACE_S
        await archiver.collect()
        gated.gate.set()
        assert await planning == RepairPlan(), f"paused before request {pause}"
        pause += 1
    assert pause > 8
