"""A collector may be killed between any two requests, lose any answer, or run twice: no live object is lost, none is
forgotten, and the next collector finishes the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.storage.archive_scenes import NEVER, Crash, CrashingStore, GatedStore, lost_answer
from tests.storage.collect_scenes import GRACE_S, CollectScene
from tests.storage.manifest_histories import TOPIC
from tests.storage.record_tables import WEB

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.manifests import manifest_codec
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_codec, "WHOLE_SEGMENTS_MAX", 2)
    monkeypatch.setattr(manifest_codec, "DIFFERENCES_MAX", 6)


async def scene_of(store: ObjectStore) -> CollectScene:
    """Garbage of several versions, two blocks of versions to collect, and version 7 of them as the base of the
    newest."""
    scene = CollectScene(store, seed=3)
    archive = ChangeKind.ARCHIVE
    for kind in (*[archive] * 5, ChangeKind.EXPIRE, archive, archive, ChangeKind.MERGE, archive):
        latest = await scene.grow(1, [kind])
    assert (latest.version, latest.base_version, len(latest.garbage)) == (9, 7, 3)
    return scene


async def requests_of_a_run() -> int:
    store = MemoryObjectStore()
    counting = CrashingStore(store, NEVER, after=False)
    await (await scene_of(store)).collector(counting).see_wait_and_run()
    return counting.calls


async def expect_all_collected(scene: CollectScene) -> None:
    await scene.collector().see_wait_and_run()
    newest = await scene.latest()
    assert newest.garbage == ()
    assert await scene.segment_objects() == {segment.key for segment in newest.segments}
    old = [version for version in await scene.versions() if version < 8]
    assert old == [version for version in [newest.base_version] if version is not None and version < 8]
    assert len(await scene.blocks()) == 2
    await scene.check()


async def test_a_crash_between_any_two_requests_loses_nothing_and_the_next_run_finishes() -> None:
    requests = await requests_of_a_run()
    assert requests > 25
    for survived in range(requests):
        for after in (False, True):
            store = MemoryObjectStore()
            scene = await scene_of(store)
            with pytest.raises(Crash):
                await scene.collector(CrashingStore(store, survived, after=after)).see_wait_and_run()
            await scene.check()
            await scene.grow(1)
            await scene.check()
            await expect_all_collected(scene)


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again() -> None:
    for survived in range(await requests_of_a_run()):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        collector = scene.collector(lost_answer(store, survived))
        for _ in range(3):
            try:
                await collector.see_wait_and_run()
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
    first = asyncio.create_task(scene.collector(gated).see_wait_and_run())
    await gated.reached.wait()
    await between(scene)
    await scene.check()
    gated.gate.set()
    [ended] = await asyncio.gather(first, return_exceptions=True)
    return scene, ended if isinstance(ended, BaseException) else None


async def test_two_collectors_do_not_harm_each_other() -> None:
    """The second collector does all its work between any two requests of the first."""
    for pause in range(await requests_of_a_run()):
        scene, error = await interrupted(pause, lambda scene: scene.collector().see_wait_and_run())
        assert error is None or isinstance(error, Conflict)
        await expect_all_collected(scene)


async def test_a_collector_that_stalls_for_long_deletes_nothing_that_came_meanwhile() -> None:
    """Other workers append and collect several blocks while it is paused."""

    async def much(scene: CollectScene) -> None:
        for _ in range(3):
            await scene.grow(5)
            await scene.collector().see_wait_and_run()
            scene.clock.now_s += GRACE_S

    for pause in range(await requests_of_a_run()):
        scene, error = await interrupted(pause, much)
        assert error is None or isinstance(error, Conflict)
        await scene.check()
        await scene.grow(1)
        await scene.collector().see_wait_and_run()
        await scene.check()


async def test_a_reader_is_right_whenever_versions_are_collected_under_it() -> None:
    """A reader opens the partition and is paused before each of its requests while versions are added and collected."""

    async def much(scene: CollectScene) -> None:
        collector = scene.collector()
        for _ in range(6):
            await scene.grow(4)
            await collector.see_wait_and_run()

    for pause in range(3):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        gated = GatedStore(store, pause)
        reader = ManifestLog(gated, TOPIC, WEB)
        reading = asyncio.create_task(reader.latest())
        await gated.reached.wait()
        before = await scene.latest()
        await much(scene)
        gated.gate.set()
        assert (await reading).version >= before.version
        assert await reader.latest() == await scene.latest()
