"""An archiver may crash, stall or run twice at any of its requests; entries are deleted only after the grace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product
from types import NoneType

import pytest
from tests.storage.archive_scenes import (
    GRACE_S,
    NEVER,
    Crash,
    CrashingStore,
    GatedStore,
    Scene,
    archiver_of,
    check_logs,
    keys,
    log_of,
    lost_answer,
    manifest_of,
    pass_and_collection,
    passes_far_apart,
    small_scene,
)
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table

from tidelog.storage.archive.archiver import Archiver, PassReport
from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

Work = Callable[[Scene, ObjectStore], Awaitable[None]]


async def operations_of_a_pass(work: Work = pass_and_collection) -> int:
    """The number of requests of one or two passes and the collection after them."""
    store = MemoryObjectStore()
    counting = CrashingStore(store, NEVER, after=False)
    await work(await small_scene(store), counting)
    return counting.calls


@pytest.mark.parametrize("work", [pass_and_collection, passes_far_apart])
async def test_a_crash_between_any_two_requests_loses_and_doubles_nothing(work: Work) -> None:
    """Each request of a pass is once the last one of a process, which takes effect or does not; then a new process
    continues. At every moment manifest and WAL form the log (inv. 5)."""
    operations = await operations_of_a_pass(work)
    assert operations > 10
    for survived in range(operations):
        for after in (False, True):
            store = MemoryObjectStore()
            scene = await small_scene(store)
            with pytest.raises(Crash):
                await work(scene, CrashingStore(store, survived, after=after))
            await check_logs(scene, store)
            await scene.append({WEB: 2, SHOP: 1}, epoch=2)
            await check_logs(scene, store)
            fresh = archiver_of(scene, store, seed=1)
            await fresh.run_once()
            await check_logs(scene, store)
            assert (await scene.wal.floor()).number == scene.next_seq
            await _expect_collection_after_a_whole_grace(scene, store, fresh)


async def _expect_collection_after_a_whole_grace(scene: Scene, store: ObjectStore, archiver: Archiver) -> None:
    left = await keys(store, "wal/0000/0")
    scene.clock.now_s += GRACE_S - 1
    # Entries that the new process saw below an older floor may not be deleted yet:
    assert await archiver.collect() <= len(left) - 1
    assert scene.wal.key(scene.next_seq - 1) in await keys(store, "wal/0000/0")
    scene.clock.now_s += 1
    await archiver.collect()
    assert await keys(store, "wal/0000/0") == []
    await check_logs(scene, store)


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again() -> None:
    for survived in range(await operations_of_a_pass()):
        store = MemoryObjectStore()
        scene = await small_scene(store)
        lossy = lost_answer(store, survived)
        archiver = archiver_of(scene, lossy)
        for _ in range(2):
            try:
                await archiver.run_once()
                scene.clock.now_s += GRACE_S
                await archiver.collect()
            except Unavailable:
                await check_logs(scene, store)
        await check_logs(scene, store)
        assert (await scene.wal.floor()).number == scene.next_seq
        topics = (await manifest_of(store)).topics.values()
        assert [len(topic.segments) for topic in topics] == [1, 1]


@pytest.mark.parametrize("work", [pass_and_collection, passes_far_apart])
async def test_two_archivers_of_a_shard_do_not_harm_each_other(work: Work) -> None:
    """The second archiver runs a whole pass, including collection, between any two requests of the first."""
    for pause in range(await operations_of_a_pass(work)):
        store = MemoryObjectStore()
        scene = await small_scene(store)
        gated = GatedStore(store, pause)
        first = asyncio.create_task(work(scene, gated))
        await gated.reached.wait()
        await pass_and_collection(scene, store, seed=1)
        await scene.append({WEB: 1, WEB_1: 1}, epoch=2)
        await check_logs(scene, store)
        gated.gate.set()
        with suppress(Conflict):
            await first
        await check_logs(scene, store)
        await archiver_of(scene, store, seed=2).run_once()
        await check_logs(scene, store)
        assert (await scene.wal.floor()).number == scene.next_seq


async def test_two_archivers_that_take_turns_at_any_requests_publish_each_record_once() -> None:
    """The first pauses before any of its requests, then the second before any of its own; the first ends, and then the
    second."""
    pauses = 9
    for first_pause, second_pause in product(range(pauses), repeat=2):
        store = MemoryObjectStore()
        scene = await small_scene(store)
        first, second = GatedStore(store, first_pause), GatedStore(store, second_pause)
        passes = []
        for seed, gated in enumerate((first, second), start=1):
            task = asyncio.create_task(archiver_of(scene, gated, seed=seed).run_once(scene.next_seq))
            await gated.reached.wait()
            passes.append(task)
        for gated, task in zip((first, second), passes, strict=True):
            gated.gate.set()
            await asyncio.wait([task])
        results = await asyncio.gather(*passes, return_exceptions=True)
        assert {type(result) for result in results[1:]} <= {Conflict, NoneType, PassReport}
        assert isinstance(results[0], PassReport), "it ended first"
        await check_logs(scene, store)
        listed = sum(topic.totals.records for topic in (await manifest_of(store)).topics.values())
        assert listed == sum(scene.next_offsets.values()), "readers pass over what is listed twice"
        assert (await scene.wal.floor()).number == scene.next_seq


# ---- the grace


async def test_entries_are_deleted_a_grace_after_the_floor_passed_them() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(3)
    scene.clock.now_s += GRACE_S / 2
    await archiver.run_once()
    scene.clock.now_s += GRACE_S / 2 - 1
    assert await archiver.collect() == 0
    scene.clock.now_s += 1
    assert await archiver.collect() == 3
    assert await keys(store, "wal/0000/0") == [scene.wal.key(3), scene.wal.key(4)]
    scene.clock.now_s += GRACE_S / 2
    assert await archiver.collect() == 2
    assert await archiver.collect() == 0
    await check_logs(scene, store)


async def test_a_restart_waits_a_whole_grace_again() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    await archiver_of(scene, store).run_once()
    scene.clock.now_s += 10 * GRACE_S
    fresh = archiver_of(scene, store, seed=1)
    assert await fresh.collect() == 0
    scene.clock.now_s += GRACE_S - 1
    assert await fresh.collect() == 0
    scene.clock.now_s += 1
    assert await fresh.collect() == 5


async def test_nothing_is_deleted_that_is_not_archived() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    scene.clock.now_s += 10 * GRACE_S
    assert await archiver.collect() == 0
    scene.clock.now_s += 10 * GRACE_S
    assert await archiver.collect() == 0
    assert len(await keys(store, "wal/0000/0")) == 5


async def test_an_entry_created_again_below_the_floor_is_not_archived() -> None:
    """A writer that stalled creates a number that was deleted: that entry was never committed."""
    store = MemoryObjectStore()
    scene = await small_scene(store)
    gated = GatedStore(store, 5)
    stalled = asyncio.create_task(archiver_of(scene, gated).run_once())
    await gated.reached.wait()
    await pass_and_collection(scene, store, seed=1)
    late = Scene(store, scene.clock, next_seq=4, next_offsets={WEB: 4, SHOP: 2})
    await late.append({WEB: 9}, epoch=1)
    gated.gate.set()
    with pytest.raises(Conflict):
        await stalled
    assert (await log_of(store, WEB)).equals(record_table(range(6)))
