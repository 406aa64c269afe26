"""The archiver: what a pass does, that it may crash between any two requests, and when entries are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.storage.archive_scenes import (
    GRACE_S,
    NEVER,
    PLACES,
    TOPIC_NAMES,
    Crash,
    CrashingStore,
    GatedStore,
    Scene,
    check_logs,
    log_of,
    lost_answer,
    manifest_of,
    small_scene,
)
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table

from tidelog.storage.archiver import Archiver, ArchiverSettings
from tidelog.storage.errors import Corrupt, Unavailable
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.stores.counting import CountingObjectStore, Verb
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal import Wal
from tidelog.storage.wal_codec import ParquetWalCodec

SETTINGS = ArchiverSettings(grace_s=GRACE_S)


def archiver_of(
    scene: Scene,
    store: ObjectStore,
    *,
    seed: int = 0,
    settings: ArchiverSettings = SETTINGS,
    topic_names: Callable[[str], str | None] = TOPIC_NAMES.get,
) -> Archiver:
    """A process of its own: it knows nothing but the bucket."""
    wal = Wal(store, 0, ParquetWalCodec())
    return Archiver(store, wal, scene.runtime(seed), topic_names, settings)


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [info.key async for info in list_all(store, prefix)]


async def test_a_pass_makes_one_segment_a_partition_and_moves_the_floor() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    report = await archiver_of(scene, store).run_once()
    assert report is not None
    assert (report.floor, report.entries, report.records) == (5, 5, 13)
    assert [(m.topic_partition, m.version, m.cold_end, len(m.segments)) for m in report.manifests] == [
        (WEB, 0, 6, 1),
        (WEB_1, 0, 4, 1),
        (SHOP, 0, 3, 1),
    ]
    assert report.manifests == tuple([await manifest_of(store, place) for place in PLACES])
    floor = await scene.wal.floor()
    assert (floor.number, floor.epoch) == (5, 2)
    assert report.stored_bytes == sum(m.segments[0].size_bytes for m in report.manifests)
    await check_logs(scene, store)


async def test_the_next_pass_goes_on_where_the_last_ended() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    assert await archiver.run_once() is None
    await scene.append({WEB: 5}, epoch=2)
    report = await archiver.run_once()
    assert report is not None
    assert [len(manifest.segments) for manifest in report.manifests] == [2]
    assert (report.manifests[0].version, report.manifests[0].cold_end) == (1, 11)
    await check_logs(scene, store)


async def test_only_entries_below_up_to_are_archived() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    report = await archiver_of(scene, store).run_once(up_to=2)
    assert report is not None
    assert report.floor == 2
    assert (await scene.wal.floor()).epoch == 1
    assert (await manifest_of(store, WEB_1)).version == -1
    await check_logs(scene, store)
    assert await archiver_of(scene, store).run_once(up_to=2) is None


async def test_a_pass_takes_as_many_entries_as_fit_and_one_at_least() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store, settings=replace(SETTINGS, batch_bytes=1))
    floors = []
    while report := await archiver.run_once():
        floors.append(report.floor)
        await check_logs(scene, store)
    assert floors == [2, 3, 5]  # a START entry holds nothing and takes the next one with it


async def test_producers_outlive_the_wal_with_their_last_batch() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    mark = (await manifest_of(store, WEB)).producers
    assert [(m.producer_id, m.first_sequence, m.last_sequence, m.base_offset) for m in mark] == [("p", 4, 5, 4)]
    await scene.append({WEB: 1}, epoch=2, producer="q")
    await archiver.run_once()
    assert [m.producer_id for m in (await manifest_of(store, WEB)).producers] == ["p", "q"]


async def test_of_too_many_producers_the_oldest_are_forgotten() -> None:
    store = MemoryObjectStore()
    scene = Scene(store)
    for number in range(5):
        await scene.append({WEB: 1}, producer=f"p{number}")
    await archiver_of(scene, store, settings=replace(SETTINGS, producers_max=2)).run_once()
    assert [m.producer_id for m in (await manifest_of(store, WEB)).producers] == ["p3", "p4"]


async def test_records_of_a_deleted_topic_are_let_go() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    report = await archiver_of(scene, store, topic_names={WEB.topic_id: "web"}.get).run_once()
    assert report is not None
    assert report.floor == 5
    assert await keys(store, "topics/shop/") == []


async def test_a_gap_between_manifest_and_wal_stops_the_pass() -> None:
    store = MemoryObjectStore()
    scene = Scene(store)
    scene.next_offsets[WEB] = 7
    await scene.append({WEB: 1})
    with pytest.raises(Corrupt, match="neither in a segment nor in the WAL"):
        await archiver_of(scene, store).run_once()
    assert (await scene.wal.floor()).number == 0


# ---- crashes


async def operations_of_a_pass() -> int:
    """Counted: the requests of a pass and of the collection after it."""
    store = MemoryObjectStore()
    counting = CrashingStore(store, NEVER, after=False)
    await _pass_and_collection(await small_scene(store), counting)
    return counting.calls


async def _pass_and_collection(scene: Scene, store: ObjectStore) -> None:
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    scene.clock.now_s += GRACE_S
    await archiver.collect()


async def test_a_crash_between_any_two_requests_loses_and_doubles_nothing() -> None:
    """Each request of a pass is the last one of a process, which it reaches or which it does not; a fresh process goes
    on. At every moment manifest and WAL make the log (inv. 5)."""
    operations = await operations_of_a_pass()
    assert operations > 20
    for survived in range(operations):
        for after in (False, True):
            store = MemoryObjectStore()
            scene = await small_scene(store)
            with pytest.raises(Crash):
                await _pass_and_collection(scene, CrashingStore(store, survived, after=after))
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
    assert await archiver.collect() <= len(left) - 1  # what the fresh process saw below an older floor may not go yet
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
        manifests = [await manifest_of(store, place) for place in PLACES]
        assert [len(manifest.segments) for manifest in manifests] == [1, 1, 1]


async def test_two_archivers_of_a_shard_do_not_harm_each_other() -> None:
    """The second runs a whole pass, collection included, between any two requests of the first."""
    for pause in range(await operations_of_a_pass()):
        store = MemoryObjectStore()
        scene = await small_scene(store)
        gated = GatedStore(store, pause)
        first = asyncio.create_task(_pass_and_collection(scene, gated))
        await gated.reached.wait()
        await _pass_and_collection(scene, store)
        await scene.append({WEB: 1, WEB_1: 1}, epoch=2)
        await check_logs(scene, store)
        gated.gate.set()
        await first
        await check_logs(scene, store)
        assert all([(await manifest_of(store, place)).segments[0].base_offset == 0 for place in PLACES])


# ---- the grace


async def test_entries_are_deleted_a_grace_after_the_floor_passed_them() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(up_to=3)
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


async def test_an_entry_made_anew_below_the_floor_is_not_archived() -> None:
    """A writer that stalled creates a number that was deleted: it was never committed."""
    store = MemoryObjectStore()
    scene = await small_scene(store)
    gated = GatedStore(store, 5)
    stalled = asyncio.create_task(archiver_of(scene, gated).run_once())
    await gated.reached.wait()
    await _pass_and_collection(scene, store)
    late = Scene(store, scene.clock, next_seq=4, next_offsets={WEB: 4, SHOP: 2})
    await late.append({WEB: 9}, epoch=1)
    gated.gate.set()
    assert await stalled is None
    assert (await log_of(store, WEB)).equals(record_table(range(6)))


async def test_an_idle_pass_and_collection_cost_two_requests() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    before = store.usage()
    assert await archiver.run_once(up_to=scene.next_seq) is None
    assert (store.usage() - before).requests(Verb.GET) == 1
    before = store.usage()
    await archiver.collect()
    assert (store.usage() - before).requests() == 1
