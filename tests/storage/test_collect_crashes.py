"""A collector may be killed between any two requests, lose any answer, or run twice: no live object is lost, none is
forgotten, and the next collector finishes the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.storage.archive_scenes import NEVER, Crash, CrashingStore, GatedStore, lost_answer
from tests.storage.collect_scenes import GRACE_S, CollectScene
from tests.storage.shard_histories import SHARD, TOPIC_ID

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore


@pytest.fixture(autouse=True)
def _short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 24)


async def scene_of(store: ObjectStore) -> CollectScene:
    """Garbage of several versions, a list among it, and two blocks of versions to collect."""
    scene = CollectScene(store, seed=3)
    archive = ChangeKind.ARCHIVE
    for kind in (*[archive] * 5, ChangeKind.EXPIRE, archive, archive, ChangeKind.MERGE, archive):
        latest = await scene.grow(1, [kind])
    keys = [garbage.key for garbage in latest.garbage]
    assert (latest.version, len(keys)) == (9, 4), keys
    assert any("lists" in key for key in keys)
    return scene


async def requests_of_a_run() -> int:
    store = MemoryObjectStore()
    counting = CrashingStore(store, NEVER, after=False)
    await (await scene_of(store)).worker(counting).see_wait_and_run()
    return counting.calls


async def expect_all_collected(scene: CollectScene) -> None:
    await scene.worker().see_wait_and_run()
    assert (await scene.latest()).garbage == ()
    assert await scene.objects() == await scene.needed()
    assert min(await scene.versions()) == 8
    assert len(await scene.blocks()) == 2
    await scene.check()


async def test_a_crash_between_any_two_requests_loses_nothing_and_the_next_run_finishes() -> None:
    requests = await requests_of_a_run()
    assert requests > 20
    for survived in range(requests):
        for after in (False, True):
            store = MemoryObjectStore()
            scene = await scene_of(store)
            with pytest.raises(Crash):
                await scene.worker(CrashingStore(store, survived, after=after)).see_wait_and_run()
            await scene.check()
            left = await scene.versions()
            assert left == list(range(left[0], left[-1] + 1)), "deleted in ascending order (`ShardLog`)"
            await scene.grow(1, [ChangeKind.ARCHIVE])
            await scene.check()
            await expect_all_collected(scene)


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again() -> None:
    for survived in range(await requests_of_a_run()):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        worker = scene.worker(lost_answer(store, survived))
        for _ in range(3):
            try:
                await worker.see_wait_and_run()
            except (Unavailable, Conflict):
                await scene.check()
        await scene.check()
        assert (await scene.latest()).garbage == ()
        await expect_all_collected(scene)


async def interrupted(
    pause: int, between: Callable[[CollectScene], Awaitable[object]]
) -> tuple[CollectScene, BaseException | None]:
    """A collector that is paused before its request number `pause`, while `between` happens."""
    store = MemoryObjectStore()
    scene = await scene_of(store)
    gated = GatedStore(store, pause)
    first = asyncio.create_task(scene.worker(gated).see_wait_and_run())
    await gated.reached.wait()
    await between(scene)
    await scene.check()
    gated.gate.set()
    [ended] = await asyncio.gather(first, return_exceptions=True)
    return scene, ended if isinstance(ended, BaseException) else None


async def test_two_collectors_do_not_harm_each_other() -> None:
    """The second collector does all its work between any two requests of the first."""
    for pause in range(await requests_of_a_run()):
        scene, error = await interrupted(pause, lambda scene: scene.worker().see_wait_and_run())
        assert error is None or isinstance(error, Conflict)
        await expect_all_collected(scene)


async def test_a_collector_that_stalls_for_long_deletes_nothing_that_came_meanwhile() -> None:
    """Other workers append and collect several blocks while it is paused."""

    async def much(scene: CollectScene) -> None:
        for _ in range(3):
            await scene.grow(5)
            await scene.worker().see_wait_and_run()
            scene.clock.now_s += GRACE_S

    for pause in range(await requests_of_a_run()):
        scene, error = await interrupted(pause, much)
        assert error is None or isinstance(error, Conflict)
        await scene.check()
        await scene.grow(1)
        await scene.worker().see_wait_and_run()
        await scene.check()


async def test_a_reader_is_right_whenever_versions_are_collected_under_it() -> None:
    """A reader opens the shard and is paused before each of its requests while versions are added and collected."""

    async def much(scene: CollectScene) -> None:
        worker = scene.worker()
        for _ in range(6):
            await scene.grow(4)
            await worker.see_wait_and_run()

    for pause in range(3):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        gated = GatedStore(store, pause)
        reader = ShardLog(gated, SHARD, Runtime(scene.clock))
        reading = asyncio.create_task(opened(reader))
        await gated.reached.wait()
        before = await scene.latest()
        await much(scene)
        gated.gate.set()
        assert await reading >= before.version
        assert (await reader.latest()).head == (await scene.latest()).head


async def opened(reader: ShardLog) -> int:
    """The version of the shard that a reader opened; it starts over if the version was too old."""
    while True:
        newest = await reader.latest()
        try:
            return (await reader.with_lists(newest, newest.topics)).version
        except Conflict:
            continue


async def test_a_worker_whose_version_is_too_old_for_its_list_starts_over() -> None:
    """It knows a version whose list was replaced and collected since."""
    store = MemoryObjectStore()
    scene = await scene_of(store)
    stale = ShardLog(store, SHARD, Runtime(scene.clock))
    known = await stale.latest()
    await scene.grow(12, [ChangeKind.ARCHIVE])
    await scene.worker().see_wait_and_run()
    with pytest.raises(Conflict, match="start over"):
        await stale.with_lists(known, [TOPIC_ID])
    assert stale.known is None
    newest = await scene.latest()
    assert (await stale.change([TOPIC_ID], lambda _: None)).version == newest.version
