"""Collection: segments and lists that left the manifest are deleted a grace later, old versions become history, and a
quiet shard costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from tests.storage.archive_scenes import ManualClock, keys
from tests.storage.collect_scenes import BLOCK_VERSIONS, GRACE_S, CollectScene, Worker
from tests.storage.shard_histories import SHARD, TOPIC, TOPIC_ID

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import manifests_prefix, segment_topic_id
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_history import BLOCK_VERSIONS as DEFAULT_BLOCK_VERSIONS
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, Garbage
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep import collect

OTHER_ID = "f" * 32
ARCHIVE, EXPIRE = ChangeKind.ARCHIVE, ChangeKind.EXPIRE


@pytest.fixture(autouse=True)
def _short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic gets a new list every few versions."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 64)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def scene(store: MemoryObjectStore) -> CollectScene:
    return CollectScene(store)


async def one_garbage(scene: CollectScene) -> Garbage:
    """Three versions; the last one removed a segment."""
    await scene.grow(2, [ARCHIVE])
    [garbage] = (await scene.grow(1, [EXPIRE])).garbage
    return garbage


# ---- garbage


async def test_garbage_is_deleted_a_grace_after_it_was_seen_and_named_no_longer(scene: CollectScene) -> None:
    garbage = await one_garbage(scene)
    worker = scene.worker()
    assert await worker.due_in_ms() == GRACE_S * 1_000
    scene.clock.now_s += GRACE_S - 1
    assert await worker.run() is None
    assert await worker.due_in_ms() == 1_000
    assert garbage.key in await scene.objects()
    scene.clock.now_s += 1
    assert await worker.due_in_ms() == 0
    appended = await worker.run()
    assert appended is not None
    assert appended.recorded is not None
    assert (appended.version, appended.garbage, appended.recorded.kind) == (3, (), ChangeKind.COLLECT)
    assert garbage.key not in await scene.objects()
    assert await worker.due_in_ms() is None
    await scene.check()


async def test_a_restart_waits_the_brokers_grace_again_whatever_the_wall_clock_says(scene: CollectScene) -> None:
    garbage = await one_garbage(scene)
    await scene.worker().run()
    scene.clock.now_s += 100 * GRACE_S
    fresh = scene.worker()
    assert await fresh.run() is None
    assert await fresh.due_in_ms() == GRACE_S * 1_000
    assert garbage.key in await scene.objects()


async def test_each_topic_has_its_own_grace_and_lists_have_the_brokers(scene: CollectScene) -> None:
    graces = {TOPIC_ID: int(10 * GRACE_S * 1_000), OTHER_ID: int(3 * GRACE_S * 1_000)}
    other = await scene.remove_segment(OTHER_ID)
    await scene.grow(14, [ARCHIVE])
    newest = await scene.grow(1, [EXPIRE])
    lists = {garbage.key for garbage in newest.garbage if "lists" in garbage.key}
    assert lists
    worker = Worker(scene.store, scene.clock, graces.__getitem__, block_versions=100)
    await worker.see_wait_and_run()
    assert {segment_topic_id(key) for key in await waiting(scene)} == {TOPIC_ID, OTHER_ID}
    assert not lists & await scene.objects()
    assert await worker.due_in_ms() == 2 * GRACE_S * 1_000
    scene.clock.now_s += 2 * GRACE_S
    await worker.run()
    assert other not in await scene.objects()
    assert await worker.due_in_ms() == 7 * GRACE_S * 1_000
    scene.clock.now_s += 7 * GRACE_S
    await worker.run()
    assert await waiting(scene) == set()
    await scene.check()


async def waiting(scene: CollectScene) -> set[str]:
    return {garbage.key for garbage in (await scene.latest()).garbage}


async def test_a_topics_grace_counts_on_while_no_collector_runs(scene: CollectScene) -> None:
    """A broker that restarts daily still deletes what waits for a day."""
    garbage = await one_garbage(scene)
    for _ in range(9):
        worker = scene.worker(graces=lambda _: int(10 * GRACE_S * 1_000))
        await worker.run()
        assert garbage.key in await scene.objects()
        scene.clock.now_s += GRACE_S
    assert await worker.due_in_ms() == GRACE_S * 1_000
    await scene.worker(graces=lambda _: int(10 * GRACE_S * 1_000)).see_wait_and_run()
    assert garbage.key not in await scene.objects()


@dataclass
class WrongWallClock(ManualClock):
    ahead_s: float = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead_s * 1_000)


async def test_a_wall_clock_that_jumps_never_shortens_the_brokers_grace(store: MemoryObjectStore) -> None:
    clock = WrongWallClock()
    scene = CollectScene(store, clock=clock)
    garbage = await one_garbage(scene)
    worker = scene.worker(graces=lambda _: 86_400_000)
    await worker.run()
    clock.ahead_s = 7 * 86_400
    assert await worker.due_in_ms() == GRACE_S * 1_000
    assert await worker.run() is None
    clock.ahead_s = -500
    clock.now_s += GRACE_S
    assert await worker.run() is None
    assert garbage.key in await scene.objects()


async def test_garbage_of_later_versions_is_collected_together(scene: CollectScene) -> None:
    """At most one version a grace says that garbage was collected."""
    first = await one_garbage(scene)
    worker = Worker(scene.store, scene.clock, block_versions=100)
    await worker.run()
    scene.clock.now_s += GRACE_S / 2
    await scene.grow(1, [ARCHIVE])
    second = (await scene.grow(1, [EXPIRE])).garbage[-1]
    await worker.run()
    scene.clock.now_s += GRACE_S / 4
    await scene.grow(1, [ARCHIVE])
    third = (await scene.grow(1, [EXPIRE])).garbage[-1]
    await worker.run()
    scene.clock.now_s += GRACE_S / 4
    await worker.run()
    assert first.key not in await scene.objects()
    assert {second.key, third.key} <= await scene.objects()
    assert await worker.due_in_ms() == GRACE_S * 1_000
    scene.clock.now_s += GRACE_S
    await worker.run()
    assert await waiting(scene) == set()
    await scene.check()


async def test_a_key_that_is_live_is_not_deleted_though_garbage_names_it(store: MemoryObjectStore) -> None:
    """No worker does this. If one did, the records are more important."""
    scene = CollectScene(store)
    await one_garbage(scene)
    newest = await scene.grow(1, [ARCHIVE])
    [removed] = newest.garbage
    again = next(iter(newest.topics[TOPIC_ID].segments))
    scene.log._latest = replace(newest, garbage=(Garbage(again.key, 1, newest.version), removed))
    await scene.append(ManifestChange(ChangeKind.SWEEP))
    appended = await scene.worker().see_wait_and_run()
    assert appended is not None
    assert appended.garbage == ()
    assert again.key in await scene.objects()
    assert removed.key not in await scene.objects()
    await scene.check()


async def test_a_step_deletes_a_bounded_number_by_one_request(
    scene: CollectScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "GARBAGE_PER_STEP", 3)
    await scene.grow(8, [ARCHIVE])
    newest = await scene.grow(7, [EXPIRE])
    left = len(newest.garbage)
    assert left > 6
    counting = CountingObjectStore(scene.store)
    worker = Worker(counting, scene.clock, block_versions=100)
    await worker.run()
    scene.clock.now_s += GRACE_S
    while left:
        assert await worker.due_in_ms() == 0
        before = counting.usage()
        appended = await worker.run()
        spent = counting.usage() - before
        assert appended is not None
        assert len(appended.garbage) == max(0, left - 3)
        assert (spent.requests(Verb.DELETE), spent.requests(Verb.CREATE)) == (1, 1)
        left = len(appended.garbage)
    assert await worker.due_in_ms() is None
    await scene.check()


async def test_a_damaged_list_keeps_the_garbage_of_its_topic_and_no_other(scene: CollectScene) -> None:
    other = await scene.remove_segment(OTHER_ID)
    await scene.grow(6, [ARCHIVE])
    topic = (await scene.grow(1, [EXPIRE])).topics[TOPIC_ID]
    assert topic.stored is not None
    worker = scene.worker()
    await worker.run()
    scene.clock.now_s += GRACE_S
    body = (await scene.store.get(topic.stored.key)).data
    await scene.store.put(topic.stored.key, body[:-1])
    for _ in range(2):
        with pytest.raises(Corrupt) as caught:
            await worker.run()
        assert caught.value.name == topic.stored.key
        assert other not in await scene.objects()
        assert await worker.due_in_ms() == GRACE_S * 1_000, "no busy loop"
    await scene.store.put(topic.stored.key, body)
    left = await waiting(scene)
    assert left
    assert all(segment_topic_id(key) == TOPIC_ID for key in left)
    await worker.run()
    assert await waiting(scene) == set()
    await scene.check()


async def test_a_deleted_topic_leaves_nothing(scene: CollectScene) -> None:
    await scene.grow(12, [ARCHIVE])
    await scene.append(ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(TOPIC_ID,)))
    await scene.worker().see_wait_and_run()
    assert await scene.objects() == set()


# ---- versions


async def test_old_versions_become_history_when_a_block_of_them_is_superseded(scene: CollectScene) -> None:
    await scene.grow(BLOCK_VERSIONS * 2 + 2)
    worker = scene.worker()
    await worker.run()
    assert await scene.versions() == list(range(10))
    scene.clock.now_s += GRACE_S
    await worker.run()
    newest = await scene.latest()
    assert await scene.versions() == list(range(8, newest.version + 1))
    assert await scene.blocks() == [f"{0:020d}-{3:020d}.json", f"{4:020d}-{7:020d}.json"]
    assert await worker.due_in_ms() is None
    await scene.check()


async def test_the_version_before_the_newest_stays(scene: CollectScene) -> None:
    """A repair reads it if the newest is damaged."""
    await scene.grow(BLOCK_VERSIONS + 1, [ARCHIVE])
    worker = scene.worker()
    await worker.run()
    assert await worker.due_in_ms() is None
    await scene.grow(1, [ARCHIVE])
    assert await worker.due_in_ms() == GRACE_S * 1_000
    await worker.see_wait_and_run()
    assert await scene.versions() == [BLOCK_VERSIONS, BLOCK_VERSIONS + 1]


async def test_versions_younger_than_the_grace_stay(scene: CollectScene) -> None:
    await scene.grow(BLOCK_VERSIONS + 1, [ARCHIVE])
    worker = scene.worker()
    await worker.run()
    scene.clock.now_s += GRACE_S - 1
    await scene.grow(1, [ARCHIVE])
    await worker.run()
    scene.clock.now_s += 1
    await worker.run()
    assert 0 in await scene.versions(), "version 5, which supersedes the block, was seen a second ago"
    scene.clock.now_s += GRACE_S
    await worker.run()
    assert min(await scene.versions()) == BLOCK_VERSIONS


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_a_reader_may_need_stays(store: MemoryObjectStore, seed: int) -> None:
    """A reader that found a version less than a grace ago reads it, its lists, and its segments."""
    scene = CollectScene(store, seed)
    worker = scene.worker()
    found = [await scene.grow(1)]
    for _ in range(40):
        found.append(await scene.grow(1))
        scene.clock.now_s += GRACE_S / 5
        await worker.run()
        reader, there = ShardLog(store, SHARD, Runtime()), await scene.objects()
        for known in found[-5:]:
            manifest = await reader.with_lists(await reader.read(known.version), known.topics)
            segments = {segment.key for segment in manifest.topics[TOPIC_ID].segments}
            assert segments <= there
        await scene.check()
    assert len(await scene.versions()) < 20
    assert len(await scene.objects()) < len(scene.heads)


async def test_a_quiet_shard_costs_nothing(store: MemoryObjectStore) -> None:
    counting = CountingObjectStore(store)
    scene = CollectScene(store)
    await scene.grow(BLOCK_VERSIONS * 3 + 2)
    worker = scene.worker(counting)
    await worker.see_wait_and_run()
    newest, now_ms = await worker.log.latest(), scene.clock.now_ms
    before = counting.usage()
    for _ in range(20):
        scene.clock.now_s += GRACE_S
        assert worker.collector.due_at_ms(newest, now_ms()) is None
    assert (counting.usage() - before).requests() == 0
    assert await worker.run() is None
    spent = counting.usage() - before
    assert spent.requests() == spent.requests(Verb.LIST) == 1, "if it is run, it looks for the newest version"


async def test_a_shard_that_was_collected_costs_a_restarted_worker_a_listing(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.grow(BLOCK_VERSIONS * 3 + 2)
    await scene.worker().see_wait_and_run()
    counting = CountingObjectStore(store)
    fresh = scene.worker(counting)
    await fresh.see_wait_and_run()
    usage = counting.usage()
    assert usage.requests(Verb.PUT) == usage.requests(Verb.CREATE) == usage.requests(Verb.DELETE) == 0
    assert await fresh.due_in_ms() is None


async def test_a_shard_of_few_versions_and_no_garbage_is_never_due(scene: CollectScene) -> None:
    change = TopicChange(TOPIC, partitions={0: ColdState()})
    await scene.log.latest()
    for _ in range(BLOCK_VERSIONS):
        await scene.append(ManifestChange(ARCHIVE, {TOPIC_ID: change}))
    assert await scene.worker().due_in_ms() is None


@pytest.mark.parametrize("broken", ["missing", "damaged", "of another history"])
async def test_a_version_that_cannot_be_kept_is_reported_and_nothing_of_its_block_is_deleted(
    store: MemoryObjectStore, broken: str
) -> None:
    scene = CollectScene(store)
    await scene.grow(BLOCK_VERSIONS + 2)
    bad = scene.log.key(2)
    if broken == "missing":
        await store.delete(bad)
    elif broken == "damaged":
        await store.put(bad, (await store.get(bad)).data[:-1])
    else:
        other = CollectScene(MemoryObjectStore(), seed=5)
        await other.grow(3)
        await store.put(bad, (await other.store.get(bad)).data)
    before = set(await keys(store, manifests_prefix(SHARD) + "0"))
    worker = scene.worker()
    await worker.run()
    scene.clock.now_s += GRACE_S
    for _ in range(2):
        with pytest.raises(Corrupt) as caught:
            await worker.run()
        assert caught.value.name == bad
        assert await worker.due_in_ms() == GRACE_S * 1_000, "no busy loop"
    assert before <= set(await keys(store, manifests_prefix(SHARD)))
    assert await scene.blocks() == []


async def test_a_number_created_again_below_the_history_is_deleted_and_changes_nothing(scene: CollectScene) -> None:
    """A stalled worker's create arrived late (see `shard_log`)."""
    await scene.grow(BLOCK_VERSIONS * 2 + 2)
    await scene.worker().see_wait_and_run()
    blocks = await scene.blocks()
    phantom = scene.log.key(2)
    await scene.store.create(phantom, b"whatever it says")
    await scene.check()
    await scene.grow(BLOCK_VERSIONS)
    await scene.worker().see_wait_and_run()
    assert phantom not in await keys(scene.store, phantom)
    assert (await scene.blocks())[: len(blocks)] == blocks
    await scene.check()


async def test_by_default_256_versions_are_a_block(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.log.latest()
    for _ in range(DEFAULT_BLOCK_VERSIONS + 2):
        await scene.append(ManifestChange(ChangeKind.SWEEP))
    await Worker(store, scene.clock, block_versions=DEFAULT_BLOCK_VERSIONS).see_wait_and_run()
    assert await scene.versions() == [256, 257]
    assert await scene.blocks() == [f"{0:020d}-{255:020d}.json"]
