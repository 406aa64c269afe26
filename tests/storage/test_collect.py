"""Collection: segments that left the list are deleted a grace later, old versions become history, and an idle partition
costs nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.storage.archive_scenes import keys
from tests.storage.collect_scenes import BLOCK_VERSIONS, GRACE_S, CollectScene
from tests.storage.manifest_histories import TOPIC
from tests.storage.record_tables import WEB

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests import manifest_codec
from tidelog.storage.manifests.manifest import ChangeKind, Garbage
from tidelog.storage.manifests.manifest_codec import may_be_base
from tidelog.storage.manifests.manifest_history import BLOCK_VERSIONS as DEFAULT_BLOCK_VERSIONS
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep import collect


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def scene(store: MemoryObjectStore) -> CollectScene:
    return CollectScene(store)


async def with_garbage(scene: CollectScene) -> Garbage:
    """Three versions; the last one removed a segment."""
    await scene.grow(2)
    await scene.history.step(ChangeKind.EXPIRE)
    [garbage] = (await scene.latest()).garbage
    return garbage


# ---- garbage


async def test_garbage_is_deleted_a_grace_after_it_was_seen_and_named_no_longer(scene: CollectScene) -> None:
    garbage = await with_garbage(scene)
    collector = scene.collector()
    assert await collector.due_in_ms() == GRACE_S * 1_000
    scene.clock.now_s += GRACE_S - 1
    assert await collector.run() is None
    assert await collector.due_in_ms() == 1_000
    assert garbage.key in await scene.segment_objects()
    scene.clock.now_s += 1
    assert await collector.due_in_ms() == 0
    appended = await collector.run()
    assert appended == await scene.latest()
    assert appended is not None
    assert (appended.garbage, appended.change and appended.change.kind) == ((), ChangeKind.COLLECT)
    assert garbage.key not in await scene.segment_objects()
    assert await collector.due_in_ms() is None
    await scene.check()


async def test_a_restart_waits_a_whole_grace_again_whatever_the_wall_clock_says(scene: CollectScene) -> None:
    garbage = await with_garbage(scene)
    await scene.collector().run()
    scene.clock.now_s += 100 * GRACE_S
    fresh = scene.collector()
    assert await fresh.run() is None
    assert await fresh.due_in_ms() == GRACE_S * 1_000
    assert garbage.key in await scene.segment_objects()


async def test_garbage_of_a_later_version_waits_for_its_own_grace(scene: CollectScene) -> None:
    first = await with_garbage(scene)
    collector = scene.collector()
    await collector.run()
    scene.clock.now_s += GRACE_S / 2
    await scene.grow(1)
    await scene.history.step(ChangeKind.EXPIRE)
    await collector.run()
    scene.clock.now_s += GRACE_S / 2
    appended = await collector.run()
    assert appended is not None
    [later] = appended.garbage
    assert later.key in await scene.segment_objects()
    assert first.key not in await scene.segment_objects()
    assert await collector.due_in_ms() == GRACE_S * 500
    await scene.check()


async def test_a_key_that_is_live_is_not_deleted_though_garbage_names_it(scene: CollectScene) -> None:
    """No worker does this. If one did, the records are more important."""
    await scene.grow(2)
    manifest = await scene.history.log.latest()
    live = manifest.segments[0]
    garbage = Garbage(live.key, live.size_bytes, manifest.version)
    scene.history.versions.append(
        await scene.history.log.append(replace(manifest, garbage=(garbage,)), ChangeKind.COLLECT)
    )
    appended = await scene.collector().see_wait_and_run()
    assert appended is not None
    assert appended.garbage == ()
    assert live.key in await scene.segment_objects()
    await scene.check()


async def test_a_step_deletes_a_bounded_number(scene: CollectScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "GARBAGE_PER_STEP", 2)
    await scene.grow(4)
    manifest = await scene.history.log.latest()
    count = len(manifest.segments)
    after = replace(manifest, segments=(), log_start_offset=manifest.cold_end)
    scene.history.versions.append(await scene.history.log.append(after, ChangeKind.EXPIRE))
    collector = scene.collector()
    left = len((await scene.latest()).garbage)
    assert left >= count > 2
    await collector.run()
    scene.clock.now_s += GRACE_S
    while await collector.due_in_ms() == 0:
        appended = await collector.run()
        assert appended is not None
        assert left - 2 <= len(appended.garbage) < left
        left = len(appended.garbage)
    assert left == 0
    await scene.check()


# ---- versions


async def test_old_versions_become_history_when_a_block_of_them_is_superseded(scene: CollectScene) -> None:
    await scene.grow(BLOCK_VERSIONS * 2 + 2)
    collector = scene.collector()
    await collector.run()
    assert await scene.versions() == list(range(10))
    scene.clock.now_s += GRACE_S
    appended = await collector.run()
    newest = await scene.latest()
    assert await scene.versions() == list(range(8, newest.version + 1))
    assert await scene.blocks() == [f"{0:020d}-{3:020d}.json", f"{4:020d}-{7:020d}.json"]
    assert (appended is None) == (newest.version == 9)
    assert await collector.due_in_ms() is None
    await scene.check()


async def test_versions_younger_than_the_grace_stay(scene: CollectScene) -> None:
    await scene.grow(BLOCK_VERSIONS)
    collector = scene.collector()
    await collector.run()
    scene.clock.now_s += GRACE_S - 1
    await scene.history.step(ChangeKind.ARCHIVE)
    await collector.run()
    scene.clock.now_s += 1
    await collector.run()
    assert 0 in await scene.versions(), "version 4, which supersedes the block, was seen a second ago"
    scene.clock.now_s += GRACE_S
    await collector.run()
    assert min(await scene.versions()) == BLOCK_VERSIONS


@pytest.mark.parametrize("seed", range(6))
async def test_the_base_of_whatever_may_be_read_stays(
    monkeypatch: pytest.MonkeyPatch, store: MemoryObjectStore, seed: int
) -> None:
    """Here a list of more than 2 segments counts as long, so many versions are differences to older ones."""
    monkeypatch.setattr(manifest_codec, "WHOLE_SEGMENTS_MAX", 2)
    monkeypatch.setattr(manifest_codec, "DIFFERENCES_MAX", 10)
    scene = CollectScene(store, seed)
    collector = scene.collector()
    kept = set()
    for _ in range(40):
        manifest = await scene.grow(1)
        scene.clock.now_s += GRACE_S / 5
        appended = await collector.run()
        if appended is not None:
            scene.history.versions.append(appended)
        reader = ManifestLog(store, TOPIC, WEB)
        for version in range(max(0, manifest.version - 5), manifest.version + 1):
            assert (await reader.read(version)).version == version, "not a grace old"
        await scene.check()
        versions = await scene.versions()
        kept.add(min(versions) % BLOCK_VERSIONS)
        for version, following in pairwise(versions):
            assert following == version + 1 or may_be_base(await reader.read(version)), "only bases stay behind"
    assert len(kept) > 1, "bases in the middle of a block were kept"
    assert len(await scene.versions()) < 40


async def test_an_idle_partition_costs_nothing(store: MemoryObjectStore) -> None:
    counting = CountingObjectStore(store)
    scene = CollectScene(store)
    await scene.grow(BLOCK_VERSIONS * 3 + 1)
    collector = scene.collector(counting)
    await collector.see_wait_and_run()
    before = counting.usage()
    for _ in range(20):
        scene.clock.now_s += GRACE_S
        assert await collector.due_in_ms() is None
        assert await collector.run() is None
    spent = counting.usage() - before
    assert spent.requests() == spent.requests(Verb.LIST), (
        "even if it is run, it looks for the newest version and no more"
    )


async def test_a_partition_that_was_collected_costs_a_restarted_worker_a_listing(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.grow(BLOCK_VERSIONS * 3 + 1)
    await scene.collector().see_wait_and_run()
    counting = CountingObjectStore(store)
    fresh = scene.collector(counting)
    await fresh.see_wait_and_run()
    usage = counting.usage()
    assert usage.requests(Verb.PUT) == usage.requests(Verb.CREATE) == usage.requests(Verb.DELETE) == 0
    assert await fresh.due_in_ms() is None


async def test_a_partition_of_few_versions_and_no_garbage_is_never_due(scene: CollectScene) -> None:
    await scene.history.run(BLOCK_VERSIONS, [ChangeKind.ARCHIVE])
    assert await scene.collector().due_in_ms() is None


@pytest.mark.parametrize("broken", ["missing", "damaged", "of another history"])
async def test_a_version_that_cannot_be_kept_is_reported_and_nothing_of_its_block_is_deleted(
    store: MemoryObjectStore, broken: str
) -> None:
    scene = CollectScene(store)
    await scene.grow(BLOCK_VERSIONS + 1)
    bad = scene.history.log.key(2)
    if broken == "missing":
        await store.delete(bad)
    elif broken == "damaged":
        await store.put(bad, (await store.get(bad)).data[:-1])
    else:
        other = CollectScene(MemoryObjectStore(), seed=5)
        await other.history.run(3, [ChangeKind.ARCHIVE, ChangeKind.EXPIRE])
        await store.put(bad, (await other.store.get(bad)).data)
    before = set(await keys(store, ""))
    collector = scene.collector()
    await collector.run()
    scene.clock.now_s += GRACE_S
    for _ in range(2):
        with pytest.raises(Corrupt) as caught:
            await collector.run()
        assert caught.value.name == bad
    lost = before - set(await keys(store, ""))
    assert not [key for key in lost if "_manifest" in key]
    assert await scene.blocks() == []


async def test_a_number_created_again_below_the_history_is_deleted_and_changes_nothing(scene: CollectScene) -> None:
    """A stalled worker's create arrived late (see `manifest_log`)."""
    await scene.grow(BLOCK_VERSIONS * 2 + 1)
    await scene.collector().see_wait_and_run()
    blocks = await scene.blocks()
    phantom = scene.history.log.key(2)
    await scene.store.create(phantom, b"whatever it says")
    await scene.check()
    await scene.grow(BLOCK_VERSIONS)
    await scene.collector().see_wait_and_run()
    assert phantom not in await keys(scene.store, phantom)
    assert (await scene.blocks())[: len(blocks)] == blocks
    await scene.check()


async def test_by_default_256_versions_are_a_block(store: MemoryObjectStore) -> None:
    scene = CollectScene(store)
    await scene.history.run(DEFAULT_BLOCK_VERSIONS + 1, [ChangeKind.ARCHIVE])
    collector = scene.collector()
    collector.block_versions = DEFAULT_BLOCK_VERSIONS
    collector.__post_init__()
    await collector.see_wait_and_run()
    assert await scene.versions() == [256]
    assert await scene.blocks() == [f"{0:020d}-{255:020d}.json"]
