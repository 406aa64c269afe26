"""An archiver whose log or manifests are damaged archives everything else, keeps the floor, and continues by itself
after the damage is repaired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.storage.archive_scenes import Scene, archiver_of, check_logs, manifest_of, small_scene
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.archive.archive_damage import LOOK_AGAIN_S
from tidelog.storage.archive.archiver import Archiver
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

Harm = Callable[[ObjectStore, str], Awaitable[None]]


async def delete(store: ObjectStore, key: str) -> None:
    await store.delete(key)


async def flip(store: ObjectStore, key: str) -> None:
    data = (await store.get(key)).data
    await store.put(key, data[:20] + bytes(byte ^ 0xFF for byte in data[20:40]) + data[40:])


async def passes(archiver: Archiver, scene: Scene, count: int = 4) -> None:
    for _ in range(count):
        await archiver.run_once(scene.next_seq)


@pytest.mark.parametrize("harm", [delete, flip])
async def test_a_lost_entry_stops_only_its_own_partitions_and_the_floor(harm: Harm) -> None:
    scene = await small_scene(store := MemoryObjectStore())  # 2: one record of WEB, four of WEB_1
    saved = (await store.get(scene.wal.key(2))).data
    await harm(store, scene.wal.key(2))
    archiver = archiver_of(scene, store)
    await passes(archiver, scene)
    assert (archiver.floor, archiver.position) == (2, 5)
    assert [lost.fault.name for lost in archiver.damage.entries.values()] == [scene.wal.key(2)]
    assert set(archiver.damage.partitions) == {WEB}, "nothing of WEB_1 follows its loss"
    assert (await manifest_of(store, SHOP)).cold_end == 3
    assert (await manifest_of(store, WEB)).cold_end == 3

    await store.put(scene.wal.key(2), saved)
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert not archiver.damage
    assert (archiver.floor, archiver.position) == (5, 5)
    await check_logs(scene, store)


async def test_a_damaged_manifest_stops_only_its_partition_and_the_floor() -> None:
    scene = await small_scene(store := MemoryObjectStore())
    await archiver_of(scene, store).run_once(up_to=2)
    await scene.append({WEB: 2, WEB_1: 1}, epoch=2)
    (key,) = [f"topics/web/{WEB.topic_id}/_manifest/00000/{0:020d}.json"]
    saved = (await store.get(key)).data
    await store.put(key, saved[:-30])
    archiver = archiver_of(scene, store)
    for _ in range(3):
        await scene.append({WEB: 2, SHOP: 1}, epoch=2)
        await passes(archiver, scene)
    assert (archiver.floor, archiver.position) == (2, 9)
    assert [stuck.fault.name for stuck in archiver.damage.partitions.values()] == [key]
    assert (await manifest_of(store, SHOP)).cold_end == scene.next_offsets[SHOP]
    assert (await manifest_of(store, WEB_1)).cold_end == scene.next_offsets[WEB_1]

    await store.put(key, saved)
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert (archiver.floor, archiver.position) == (9, 9)
    await check_logs(scene, store)


async def test_damage_that_stays_costs_a_look_now_and_then() -> None:
    scene = await small_scene(store := MemoryObjectStore())
    await store.delete(scene.wal.key(2))
    counting = CountingObjectStore(store)
    archiver = archiver_of(scene, counting)
    await passes(archiver, scene, 10)
    before = counting.usage()
    for _ in range(10):
        scene.clock.now_s += LOOK_AGAIN_S
        await archiver.run_once(scene.next_seq)
    assert (counting.usage() - before).total().requests <= 10 * 6


async def test_many_lost_entries_are_gone_over_a_bounded_number_a_pass() -> None:
    scene = Scene(store := MemoryObjectStore())
    for _ in range(200):
        await scene.append({WEB: 1})
    await scene.append({SHOP: 1})
    for seq in range(200):
        await store.delete(scene.wal.key(seq))
    archiver = archiver_of(scene, store)
    await archiver.run_once(scene.next_seq)
    assert len(archiver.damage.entries) == 64
    await passes(archiver, scene)
    assert len(archiver.damage.entries) == 200
    assert (await manifest_of(store, SHOP)).cold_end == 1


async def test_a_floor_that_was_moved_past_a_lost_entry_lets_archiving_continue() -> None:
    scene = await small_scene(store := MemoryObjectStore())
    await store.delete(scene.wal.key(2))
    archiver = archiver_of(scene, store)
    await passes(archiver, scene)
    await scene.wal.advance_floor(3, 1)
    await passes(archiver, scene)
    assert not archiver.damage.entries
    assert set(archiver.damage.partitions) == {WEB}, "its offsets are not given up yet"
