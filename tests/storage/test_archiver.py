"""A pass of the archiver: what it makes, skips, keeps and costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.storage.archive_scenes import (
    NEVER,
    PLACES,
    SETTINGS,
    CrashingStore,
    Scene,
    archiver_of,
    check_logs,
    keys,
    manifest_of,
    small_scene,
)
from tests.storage.manifest_histories import decode_manifest
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.manifests.manifest_codec import encode_manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore, Kind, RequestCounts
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep.fresh_upload import APPEND_ATTEMPTS_MAX
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S


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


async def test_the_next_pass_continues_where_the_last_ended() -> None:
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


async def test_a_partition_with_next_to_nothing_does_not_hold_up_the_floor() -> None:
    store = MemoryObjectStore()
    scene = Scene(store)
    await scene.begin_epoch(1)
    await scene.append({SHOP: 1})
    for _ in range(5):
        await scene.append({WEB: 500})
    report = await archiver_of(scene, store).run_once()
    assert report is not None
    assert report.floor == scene.next_seq
    (segment,) = (await manifest_of(store, SHOP)).segments
    assert (segment.records, segment.level, segment.archived_at_ms) == (1, 0, scene.clock.now_ms())
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
    assert floors == [2, 3, 5]  # a START entry holds no records and is read together with the next entry


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


async def test_producers_that_were_silent_for_too_long_are_forgotten() -> None:
    store = MemoryObjectStore()
    scene, settings = Scene(store), replace(SETTINGS, producer_expiration_ms=10_000)
    for producer in ("a", "b", "c", "d"):
        await scene.append({WEB: 1}, producer=producer)
        await archiver_of(scene, store, settings=settings).run_once()
        scene.clock.now_s += 6
    kept = [mark.producer_id for mark in (await manifest_of(store, WEB)).producers]
    assert kept == ["b", "c", "d"], "b was archived 12 s ago, but nothing behind it is older than 10 s"


async def test_records_of_a_deleted_topic_are_let_go() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    report = await archiver_of(scene, store, topic_names={WEB.topic_id: "web"}.get).run_once()
    assert report is not None
    assert report.floor == 5
    assert await keys(store, "topics/shop/") == []


async def test_a_gap_between_manifest_and_wal_is_named_and_holds_the_floor() -> None:
    store = MemoryObjectStore()
    scene = Scene(store)
    scene.next_offsets[WEB] = 7
    await scene.append({WEB: 1})
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    assert "neither in a segment nor in the WAL" in archiver.damage.partitions[WEB].fault.reason
    assert (await scene.wal.floor()).number == 0


class AlwaysBeaten(CrashingStore):
    """Another worker is always faster with the next manifest of `WEB`; its version adds nothing."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.beaten = 0
        self.uploads = 0

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        self.uploads += "/partition=" in key
        return await super().put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        if f"{WEB.topic_id}/_manifest/{WEB.partition:05d}/" in key:
            self.beaten += 1
            rival = replace(decode_manifest(key, bytes(data)), cold_end=0, segments=(), producers=())
            await self._inner.create(key, encode_manifest(rival))
            raise Conflict(key)
        return await super().create(key, data)


async def test_an_archiver_that_never_wins_gives_up_and_leaves_the_floor() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    beaten = AlwaysBeaten(store)
    with pytest.raises(Conflict):
        await archiver_of(scene, beaten).run_once()
    assert beaten.beaten == APPEND_ATTEMPTS_MAX
    assert beaten.uploads == len(PLACES), "what was uploaded once fits into any version"
    assert (await scene.wal.floor()).number == 0
    await check_logs(scene, store)


@pytest.mark.parametrize(("logs_max", "gets"), [(3, 0), (2, 3)])
async def test_so_many_manifests_are_remembered_between_passes(logs_max: int, gets: int) -> None:
    store = CountingObjectStore(MemoryObjectStore())
    scene = await small_scene(store)
    archiver = archiver_of(scene, store, settings=replace(SETTINGS, manifest_logs_max=logs_max))
    await archiver.run_once()
    await scene.append({WEB: 1, WEB_1: 1, SHOP: 1}, epoch=2)
    before = store.usage()
    await archiver.run_once()
    assert (store.usage() - before).requests(Verb.GET, kind=Kind.MANIFEST) == gets


@pytest.mark.parametrize(("pause_s", "heads"), [(0.0, 0), (FLOOR_TRUST_S + 1, 3)])
async def test_a_partition_costs_two_puts_a_pass_and_a_head_if_the_last_was_long_ago(
    pause_s: float, heads: int
) -> None:
    store = CountingObjectStore(MemoryObjectStore())
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    for _ in range(3):
        scene.clock.now_s += pause_s
        await scene.append({WEB: 1, WEB_1: 1, SHOP: 1}, epoch=2)
        before = store.usage()
        await archiver.run_once()
        spent = store.usage() - before
        assert spent.counts(kind=Kind.MANIFEST) == RequestCounts(puts=3, heads=heads)
        assert spent.counts(kind=Kind.SEGMENT) == RequestCounts(puts=3)
        assert spent.requests(Verb.LIST) == 0


async def test_a_version_of_another_worker_costs_no_other_upload() -> None:
    """For example a merge: the archiver uses the version it knows, and its create shows that there is another one."""
    store = CountingObjectStore(MemoryObjectStore())
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    other = ManifestLog(store, "web", WEB)
    merged = await other.append(replace(await other.latest(), log_start_offset=1), ChangeKind.EXPIRE)
    await scene.append({WEB: 1}, epoch=2)
    before = store.usage()
    await archiver.run_once()
    assert (store.usage() - before).counts(kind=Kind.SEGMENT) == RequestCounts(puts=1)
    latest = await manifest_of(store, WEB)
    assert (latest.version, latest.log_start_offset, len(latest.segments)) == (merged.version + 1, 1, 2)
    await check_logs(scene, store)


async def test_the_archiver_finds_entries_that_another_archiver_has_archived_and_deleted() -> None:
    """The manifest that this archiver knows ends before the log begins."""
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    await scene.append({WEB: 2}, epoch=2)
    await archiver_of(scene, store, seed=1).run_once()
    await scene.append({WEB: 1}, epoch=2)
    report = await archiver.run_once()
    assert report is not None
    assert [(manifest.cold_end, len(manifest.segments)) for manifest in report.manifests] == [(9, 3)]
    await check_logs(scene, store)


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
