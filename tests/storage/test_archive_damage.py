"""An archiver whose log or lists are damaged archives everything else, keeps the floor, and continues by itself
after the damage is repaired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pyarrow as pa
import pytest
from tests.storage.archive_scenes import TOPIC_NAMES, Scene, archiver_of, check_logs, manifest_of, small_scene, state_of
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.archive.archive_damage import LOOK_AGAIN_S
from tidelog.storage.archive.archiver import Archiver
from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.losses import Loss
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import Footer, RowGroup
from tidelog.storage.parquet.row_decoding import decode_rows
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal import stored_entry
from tidelog.storage.wal.floor import Floor

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
    assert (await state_of(store, SHOP)).cold_end == 3
    assert (await state_of(store, WEB)).cold_end == 3

    await store.put(scene.wal.key(2), saved)
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert not archiver.damage
    assert (archiver.floor, archiver.position) == (5, 5)
    await check_logs(scene, store)


async def test_a_damaged_list_stops_only_its_topic_and_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 2)
    scene = await small_scene(store := MemoryObjectStore())
    await archiver_of(scene, store).run_once(3)
    await scene.append({WEB: 2, WEB_1: 1}, epoch=2)
    stored = (await manifest_of(store)).topics[WEB.topic_id].stored
    assert stored is not None
    saved = (await store.get(stored.key)).data
    await store.put(stored.key, saved[:-30])
    archiver = archiver_of(scene, store, seed=1)
    for _ in range(3):
        await scene.append({WEB: 2, SHOP: 1}, epoch=2)
        await passes(archiver, scene)
    assert (archiver.floor, archiver.position) == (3, 9)
    assert [stuck.fault.name for stuck in archiver.damage.topics.values()] == [stored.key]
    newest = await scene.log.with_lists(await scene.log.latest(), [SHOP.topic_id])
    assert newest.topics[SHOP.topic_id].partition(0).cold_end == scene.next_offsets[SHOP]
    assert newest.floor.number == 3

    await store.put(stored.key, saved)
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert (archiver.floor, archiver.position) == (9, 9)
    await check_logs(scene, store)


async def test_a_topic_that_was_deleted_with_a_damaged_list_no_longer_holds_the_floor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 2)
    scene, names = await small_scene(store := MemoryObjectStore()), dict(TOPIC_NAMES)
    archiver_of_names = partial(archiver_of, scene, store, topic_names=names.get)
    await archiver_of_names().run_once(3)
    stored = (await manifest_of(store)).topics[WEB.topic_id].stored
    assert stored is not None
    await store.delete(stored.key)
    archiver = archiver_of_names(seed=1)
    await passes(archiver, scene)
    assert set(archiver.damage.topics) == {WEB.topic_id}
    del names[WEB.topic_id]
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert not archiver.damage
    assert (archiver.floor, archiver.position) == (5, 5)


async def test_a_gap_between_manifest_and_wal_is_named_and_holds_the_floor() -> None:
    scene = Scene(store := MemoryObjectStore())
    scene.next_offsets[WEB] = 7
    await scene.append({WEB: 1, SHOP: 2})
    archiver = archiver_of(scene, store)
    await passes(archiver, scene)
    assert "neither in a segment nor in the WAL" in archiver.damage.partitions[WEB].fault.reason
    assert (archiver.floor, archiver.position) == (0, 1)
    assert (await state_of(store, SHOP)).cold_end == 2


async def test_a_gap_within_the_wal_stops_its_partition_after_the_records_before_it() -> None:
    scene = Scene(store := MemoryObjectStore())
    await scene.append({WEB: 3})
    scene.next_offsets[WEB] = 5
    await scene.append({WEB: 1, SHOP: 1})
    archiver = archiver_of(scene, store)
    await passes(archiver, scene)
    assert archiver.damage.partitions[WEB].base_offset == 5
    assert (await state_of(store, WEB)).cold_end == 3
    assert (await state_of(store, SHOP)).cold_end == 1


async def test_a_recorded_loss_frees_its_partition() -> None:
    scene = Scene(store := MemoryObjectStore())
    scene.next_offsets[WEB] = 7
    await scene.append({WEB: 1})
    archiver = archiver_of(scene, store)
    await passes(archiver, scene)
    lost = TopicChange("web", partitions={0: ColdState(losses=(Loss(0, 7, "wal", 0),))})
    await scene.log.change([], lambda _: ManifestChange(ChangeKind.LOSE, {WEB.topic_id: lost}))
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert not archiver.damage
    assert (archiver.floor, (await state_of(store, WEB)).cold_end) == (1, 8)


async def test_an_entry_that_cannot_be_decoded_is_lost_although_its_checksums_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = await small_scene(store := MemoryObjectStore())
    key = scene.wal.key(2)

    def undecodable(
        name: str, flavor: ParquetFlavor, footer: Footer, groups: Sequence[RowGroup], body: memoryview
    ) -> pa.Table:
        if name == key:
            raise Corrupt(key, "is not Parquet")
        return decode_rows(name, flavor, footer, groups, body)

    monkeypatch.setattr(stored_entry, "decode_rows", undecodable)
    archiver = archiver_of(scene, store)
    for _ in range(3):
        await passes(archiver, scene)
        scene.clock.now_s += LOOK_AGAIN_S
        assert (archiver.floor, archiver.position) == (2, 5)
        assert [lost.fault.name for lost in archiver.damage.entries.values()] == [key]
    assert (await state_of(store, SHOP)).cold_end == 3
    monkeypatch.undo()
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert (archiver.floor, archiver.position) == (5, 5)
    await check_logs(scene, store)


async def test_a_damaged_manifest_stops_the_shard_and_names_the_version() -> None:
    scene = await small_scene(store := MemoryObjectStore())
    await archiver_of(scene, store).run_once(3)
    key = scene.log.key(0)
    await flip(store, key)
    with pytest.raises(Corrupt, match=key):
        await archiver_of(scene, store).run_once(scene.next_seq)


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
    assert (await state_of(store, SHOP)).cold_end == 1


async def test_a_floor_that_was_moved_past_a_lost_entry_lets_archiving_continue() -> None:
    scene = await small_scene(store := MemoryObjectStore())
    await store.delete(scene.wal.key(2))
    archiver = archiver_of(scene, store)
    await passes(archiver, scene)
    await scene.log.change([], lambda _: ManifestChange(ChangeKind.LOSE, floor=Floor(3, 1)))
    scene.clock.now_s += LOOK_AGAIN_S
    await passes(archiver, scene)
    assert not archiver.damage.entries
    assert set(archiver.damage.partitions) == {WEB}, "its offsets are not given up yet"
