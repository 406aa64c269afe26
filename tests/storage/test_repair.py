"""A shard that lost objects is repaired: the loss is recorded, all else is there byte for byte, and its history is one
chain."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from tests.storage.archive_scenes import (
    GRACE_S,
    NEVER,
    PLACES,
    Crash,
    CrashingStore,
    GatedStore,
    Scene,
    archiver_of,
    keys,
    log_of,
    manifest_of,
    small_scene,
    state_of,
)
from tests.storage.copy_scenes import expect_history
from tests.storage.damage_by_hand import Harm, cut, delete, flip
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table
from tests.storage.sweep_scenes import orphan_in, rewrite

from tidelog.storage.bucket.finding import Severity
from tidelog.storage.bucket.repair.bucket_repair import BucketRepair, RepairPlan
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import Conflict
from tidelog.storage.layout import TOPICS_PREFIX, TopicPartition
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_tail import find_tail

Lost = Mapping[TopicPartition, Sequence[int]]


@dataclass
class Damaged:
    """A bucket with a log that goes on, and a process that repairs it."""

    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    scene: Scene = field(init=False)

    async def filled(self, *, archived: int = 0) -> Damaged:
        """Entries 1, 2, 4 and 5 hold records. The first pass, if any, archives entries up to 3, the second all."""
        self.scene = await small_scene(self.store)
        await self.scene.append({WEB: 1, WEB_1: 2, SHOP: 1}, epoch=2)
        for number in range(archived):
            await archiver_of(self.scene, self.store, seed=number).run_once(4 if number == 0 else None)
        return self

    def repair(self, store: ObjectStore | None = None) -> BucketRepair:
        runtime = Runtime(self.scene.clock, SeededEntropy(11))
        return BucketRepair(store or self.store, SaidTopics(), runtime, deep=True)

    async def repaired(self) -> RepairPlan:
        """Repair; return the plan."""
        plan = await self.repair().plan()
        assert not plan.unsolved
        await self.repair().apply(plan)
        again = await self.repair().plan()
        assert (again, list(again.unsolved)) == (RepairPlan(), [])
        return plan

    async def collect_log(self) -> None:
        """Delete the archived entries, as a broker does after the grace."""
        floor = (await self.scene.log.latest()).floor.number
        await self.store.delete_many([self.scene.wal.key(seq) for seq in range(floor)])

    async def key_of_segment(self, place: TopicPartition, number: int = 0) -> str:
        return list((await manifest_of(self.store)).topics[place.topic_id].segments)[number].key

    async def key_of_list(self, place: TopicPartition) -> str:
        """The list that the newest version names."""
        stored = (await self.scene.log.latest()).topics[place.topic_id].stored
        assert stored is not None
        return stored.key

    async def check(self, lost: Lost) -> None:
        """Check that exactly the `lost` records are recorded as lost, that all others are there, and that the log goes
        on: records can be appended and archived, and nothing else is lost."""
        for _ in range(2):
            for place in PLACES:
                gone = set(lost.get(place, ()))
                state = await state_of(self.store, place)
                assert {n for loss in state.losses for n in range(loss.first_offset, loss.next_offset)} == gone, place
                kept = [n for n in range(self.scene.next_offsets[place]) if n not in gone]
                assert (await log_of(self.store, place)).equals(record_table(kept)), place
            await expect_history(self.store)
            found = [finding async for finding in BucketVerification(self.store, deep=True).findings()]
            assert [finding for finding in found if finding.severity is Severity.ERROR] == []
            await self.scene.append(dict.fromkeys(PLACES, 2), epoch=2)
            archiver = archiver_of(self.scene, self.store, seed=50 + self.scene.next_seq)
            await archiver.run_once()
            assert not archiver.damage
            assert (await self.scene.log.latest()).floor.number == self.scene.next_seq


HELD: Mapping[int, Lost] = {
    1: {WEB: range(3), SHOP: range(2)},
    2: {WEB: [3], WEB_1: range(4)},
    4: {WEB: [4, 5], SHOP: [2]},
}


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


# ---- lists


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version writes new lists of the topics that it changes."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)


@pytest.mark.parametrize("harm", [delete, flip, cut])
async def test_a_lost_list_is_made_again_of_history_and_segments(lists: None, harm: Harm) -> None:
    bucket = await Damaged().filled(archived=2)
    before = (await manifest_of(bucket.store)).topics[WEB.topic_id]
    await bucket.collect_log()
    await orphan_in(bucket.store)
    named = await bucket.key_of_list(WEB)
    await harm(bucket.store, named)
    ((shard, restored),) = (await bucket.repair().plan()).lists
    assert (shard, restored.key, restored.lost_segments, restored.losses()) == (0, named, 0, {})
    await bucket.repaired()
    after = (await manifest_of(bucket.store)).topics[WEB.topic_id]
    assert sorted(each.sha256 for each in after.segments) == sorted(each.sha256 for each in before.segments)
    assert after.totals == before.totals
    await bucket.check({})


async def test_with_a_list_and_a_segment_lost_the_rest_is_listed_again(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    await bucket.store.delete_many([await bucket.key_of_segment(WEB), await bucket.key_of_list(WEB)])
    await bucket.repaired()
    await bucket.check({WEB: range(4), WEB_1: range(4)})


async def test_a_lost_list_of_a_topic_that_changed_since_is_planned_again(lists: None) -> None:
    bucket = await Damaged().filled(archived=1)
    named = await bucket.key_of_list(WEB)
    listed = (await bucket.store.get(named)).data
    await bucket.store.delete(named)
    plan = await bucket.repair().plan()
    await bucket.store.put(named, listed)
    await archiver_of(bucket.scene, bucket.store, seed=5).run_once()
    with pytest.raises(Conflict, match="changed since"):
        await bucket.repair().apply(plan)
    await bucket.check({})


async def test_a_damaged_newest_version_is_made_again_of_the_lists_of_the_one_before_it(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    await flip(bucket.store, bucket.scene.log.key(1))
    await bucket.repaired()
    bucket.scene.next_seq = (await find_tail(bucket.scene.wal)).next_seq
    assert bucket.scene.next_seq == 4, "no entry is left, so the log goes on at the floor of that version"
    await bucket.check({})


async def test_where_these_lists_were_collected_a_damaged_newest_version_is_for_a_person(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    newest = await bucket.scene.log.latest()
    await bucket.store.delete_many([each.key for each in newest.garbage])
    key = bucket.scene.log.key(1)
    await flip(bucket.store, key)
    plan = await bucket.repair().plan()
    assert (bool(plan), {finding.key for finding in plan.unsolved}) == (False, {key})


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


async def test_where_the_history_has_a_gap_a_damaged_list_is_for_a_person_and_holds_the_floor(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.scene.append(dict.fromkeys(PLACES, 1), epoch=2)
    await bucket.scene.append(dict.fromkeys(PLACES, 1), epoch=2)
    of_web, of_shop = await bucket.key_of_list(WEB), await bucket.key_of_segment(SHOP)
    spoiled = {of_web: b"?", bucket.scene.log.key(0): b"?"}
    sound = {key: (await bucket.store.get(key)).data for key in spoiled}
    for key, data in spoiled.items():
        await bucket.store.put(key, data)
    await bucket.store.delete_many([of_shop, bucket.scene.wal.key(6)])
    plan = await bucket.repair().plan()
    assert [finding.key for finding in plan.unsolved] == [bucket.scene.log.key(0)]
    (repair,) = plan.shards
    assert ([topic.topic for topic in repair.topics], dict(repair.entries)) == (["shop"], {})
    await bucket.repair().apply(plan)
    assert (await bucket.scene.log.latest()).floor.number == 6
    for key, data in sound.items():
        await bucket.store.put(key, data)
    await bucket.repaired()
    await bucket.check({WEB: [7], WEB_1: [6], SHOP: [0, 1, 4]})


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


# ---- crashes and rivals


async def badly_damaged() -> Damaged:
    """Two entries, a segment and the newest version are lost."""
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    for _ in range(3):
        await bucket.scene.append(dict.fromkeys(PLACES, 1), epoch=2)
    await flip(bucket.store, bucket.scene.log.key(1))
    await bucket.store.delete(await first_segment(bucket))
    await bucket.store.delete_many([bucket.scene.wal.key(seq) for seq in (7,)])
    return bucket


async def first_segment(bucket: Damaged) -> str:
    manifest = await bucket.scene.log.read(0)
    return next(iter(manifest.topics[WEB.topic_id].segments)).key


BADLY_LOST: Lost = {WEB: [0, 1, 2, 3, 8], WEB_1: [0, 1, 2, 3, 7], SHOP: [5]}


async def test_much_damage_is_repaired_at_once() -> None:
    bucket = await badly_damaged()
    await bucket.repaired()
    await bucket.check(BADLY_LOST)


async def test_a_crash_between_any_two_requests_is_made_good_by_running_again() -> None:
    bucket = await badly_damaged()
    counting = CrashingStore(bucket.store, NEVER, after=False)
    await bucket.repair(counting).apply(await bucket.repair().plan())
    for survived in range(counting.calls):
        bucket = await badly_damaged()
        crashing = CrashingStore(bucket.store, survived, after=True)
        plan = await bucket.repair().plan()
        with pytest.raises(Crash):
            await bucket.repair(crashing).apply(plan)
        await bucket.repaired()
        await bucket.check(BADLY_LOST)


async def test_a_broker_that_archives_between_any_two_requests_changes_nothing() -> None:
    pause, reached = 0, True
    while reached:
        bucket = await Damaged().filled(archived=1)
        await bucket.scene.append({WEB: 1}, epoch=2)
        await bucket.store.delete(bucket.scene.wal.key(4))
        plan = await bucket.repair().plan()
        gated = GatedStore(bucket.store, pause)
        applying = asyncio.create_task(bucket.repair(gated).apply(plan))
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([applying, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        await archiver_of(bucket.scene, bucket.store, seed=5).run_once()
        gated.gate.set()
        await applying
        await bucket.check(HELD[4])
        pause += 1
    assert pause > 5
