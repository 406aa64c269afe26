"""A pass of the archiver: what it stores, skips, keeps and costs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from msgspec import structs
from tests.storage.archive_scenes import (
    NEVER,
    SETTINGS,
    TOPIC_NAMES,
    CrashingStore,
    Scene,
    archiver_of,
    check_logs,
    keys,
    manifest_of,
    small_scene,
    state_of,
)
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.archive import topic_plan
from tidelog.storage.archive.pass_change import ProducerLimits
from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_upload import APPEND_ATTEMPTS_MAX
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, LeaderEpoch
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S


async def test_a_pass_is_one_segment_per_topic_and_one_version() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    counting = CountingObjectStore(store)
    report = await archiver_of(scene, counting).run_once(scene.next_seq)
    assert report is not None
    assert (report.entries, report.records, report.manifest.version) == (5, 13, 0)
    assert report.manifest.floor == Floor(5, 2)
    assert set(report.segments) == set(TOPIC_NAMES)
    usage = counting.usage()
    assert usage.requests(Verb.PUT) + usage.requests(Verb.CREATE) == 3
    assert (usage.requests(Verb.LIST), usage.requests(Verb.GET)) == (1, 5)
    assert report.manifest == await manifest_of(store)
    web = report.manifest.topics[WEB.topic_id]
    (segment,) = web.segments
    assert segment == report.segments[WEB.topic_id]
    assert [span.partition for span in segment.spans] == [0, 1]
    assert (segment.run, segment.level, segment.archived_at_ms) == (0, 0, scene.clock.now_ms())
    assert web.partition(0).epochs == (LeaderEpoch(1, 0), LeaderEpoch(2, 4))
    assert report.stored_bytes == sum(each.size_bytes for each in report.segments.values())
    await check_logs(scene, store)


async def test_the_next_pass_continues_and_costs_no_listing() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    counting = CountingObjectStore(store)
    archiver = archiver_of(scene, counting)
    await archiver.run_once(scene.next_seq)
    await scene.append({WEB: 5, SHOP: 1}, epoch=2)
    before = counting.usage()
    report = await archiver.run_once(scene.next_seq)
    spent = counting.usage() - before
    assert report is not None
    assert (report.records, report.manifest.topics[WEB.topic_id].next_run) == (6, 2)
    assert (spent.requests(Verb.LIST), spent.requests(Verb.GET), spent.requests()) == (0, 1, 4)
    await check_logs(scene, store)
    assert await archiver.run_once(scene.next_seq) is None


@pytest.mark.parametrize(("pause_s", "heads"), [(0.0, 0), (FLOOR_TRUST_S + 1, 1)])
async def test_a_pass_long_after_the_last_costs_a_head_more(pause_s: float, heads: int) -> None:
    store = CountingObjectStore(MemoryObjectStore())
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(scene.next_seq)
    for _ in range(3):
        scene.clock.now_s += pause_s
        await scene.append({WEB: 1, WEB_1: 1, SHOP: 1}, epoch=2)
        before = store.usage()
        await archiver.run_once(scene.next_seq)
        spent = store.usage() - before
        assert (spent.requests(Verb.HEAD), spent.requests(Verb.LIST), spent.requests()) == (heads, 0, 4 + heads)


async def test_an_idle_pass_and_collection_cost_nothing() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(scene.next_seq)
    before = store.usage()
    assert await archiver.run_once(scene.next_seq) is None
    assert await archiver.collect() == 0
    assert (store.usage() - before).requests() == 0


async def test_only_entries_below_the_end_are_archived() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    report = await archiver.run_once(2)
    assert report is not None
    assert report.manifest.floor == Floor(2, 1)
    assert (archiver.floor, archiver.position) == (2, 2)
    assert (await state_of(store, WEB_1)) == ColdState()
    await check_logs(scene, store)
    assert await archiver_of(scene, store).run_once(2) is None


async def test_a_pass_takes_as_many_entries_as_fit_and_one_at_least() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store, settings=replace(SETTINGS, batch_bytes=1))
    floors = []
    while report := await archiver.run_once(scene.next_seq):
        floors.append(report.manifest.floor.number)
        await check_logs(scene, store)
    assert floors == [1, 2, 3, 4, 5]


async def test_a_pass_takes_as_many_entries_as_may_be_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_plan, "DECODED_BYTES_MAX", 1)
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    floors = []
    while report := await archiver.run_once(scene.next_seq):
        floors.append(report.manifest.floor.number)
    assert floors == [1, 2, 3, 4, 5]
    await check_logs(scene, store)


async def test_many_partitions_share_a_segment() -> None:
    store = MemoryObjectStore()
    scene = Scene(store)
    await scene.begin_epoch(1)
    places = [TopicPartition(WEB.topic_id, number) for number in range(200)]
    for _ in range(3):
        await scene.append(defaultdict(int, dict.fromkeys(places, 2)))
    counting = CountingObjectStore(store)
    report = await archiver_of(scene, counting).run_once(scene.next_seq)
    assert report is not None
    assert len(report.segments[WEB.topic_id].spans) == 200
    assert counting.usage().requests(Verb.PUT) + counting.usage().requests(Verb.CREATE) == 2
    await check_logs(scene, store)


# ---- producers


async def test_producers_outlive_the_wal_with_their_last_batch() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    marks = (await state_of(store, WEB)).producers
    assert [(m.producer_id, m.first_sequence, m.last_sequence, m.base_offset) for m in marks] == [("p", 4, 5, 4)]
    await scene.append({WEB: 1}, epoch=2, producer="q")
    await archiver.run_once()
    assert await producers_of(store) == ["p", "q"]


async def producers_of(store: ObjectStore) -> list[str]:
    return [known.producer_id for known in (await state_of(store, WEB)).producers]


async def test_of_too_many_producers_the_oldest_are_forgotten() -> None:
    store = MemoryObjectStore()
    scene = Scene(store)
    for number in range(5):
        await scene.append({WEB: 1}, producer=f"p{number}")
    settings = replace(SETTINGS, producers=ProducerLimits(producers_max=2))
    await archiver_of(scene, store, settings=settings).run_once()
    assert await producers_of(store) == ["p3", "p4"]


async def test_producers_that_were_silent_for_too_long_are_forgotten() -> None:
    store = MemoryObjectStore()
    scene, settings = Scene(store), replace(SETTINGS, producers=ProducerLimits(expiration_ms=10_000))
    for seed, producer in enumerate("abcd"):
        await scene.append({WEB: 1}, producer=producer)
        await archiver_of(scene, store, seed=seed, settings=settings).run_once()
        scene.clock.now_s += 6
    assert await producers_of(store) == ["c", "d"], "b was archived 12 s before d"


# ---- other workers


async def test_a_version_of_another_worker_costs_no_second_upload() -> None:
    """For example an expiry: the archiver appends to the version it knows, and its create shows that there is another
    one."""
    store = CountingObjectStore(MemoryObjectStore())
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(3)
    before = await state_of(store, WEB)
    moved = TopicChange("web", partitions={0: structs.replace(before, log_start_offset=1)})
    await scene.log.change([WEB.topic_id], lambda _: ManifestChange(ChangeKind.EXPIRE, {WEB.topic_id: moved}))
    usage = store.usage()
    report = await archiver.run_once(scene.next_seq)
    assert report is not None
    assert (report.manifest.version, (store.usage() - usage).requests(Verb.PUT)) == (2, 2)
    assert (await state_of(store, WEB)).log_start_offset == 1
    await check_logs(scene, store)


async def test_a_sweep_in_between_makes_it_upload_again() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(3)
    await scene.log.change([], lambda _: ManifestChange(ChangeKind.SWEEP))
    report = await archiver.run_once(scene.next_seq)
    assert report is not None
    kept = {segment.key for topic in report.manifest.topics.values() for segment in topic.segments}
    assert {segment.key for segment in report.segments.values()} < kept
    assert kept < set(await keys(store, "topics/")), "the first upload is an orphan now"
    await check_logs(scene, store)


class AlwaysBeaten(CrashingStore):
    """Another worker always appends the next version first; it adds nothing."""

    def __init__(self, inner: ObjectStore, scene: Scene) -> None:
        super().__init__(inner, NEVER, after=False)
        self._scene = scene
        self.beaten = 0
        self.uploads = 0

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        self.uploads += key.startswith("topics/")
        return await super().put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        self.beaten += 1
        await self._scene.log.change([], lambda _: ManifestChange(ChangeKind.MERGE))
        return await super().create(key, data)


async def test_an_archiver_that_never_wins_gives_up_and_leaves_the_floor() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    beaten = AlwaysBeaten(store, scene)
    with pytest.raises(Conflict):
        await archiver_of(scene, beaten).run_once()
    assert beaten.beaten == APPEND_ATTEMPTS_MAX
    assert beaten.uploads == len(TOPIC_NAMES), "what was uploaded once fits into any version"
    assert (await scene.wal.floor()).number == 0
    await check_logs(scene, store)


async def test_the_archiver_finds_entries_that_another_archiver_has_archived_and_deleted() -> None:
    """The version that this archiver knows ends before the log begins."""
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once()
    await scene.append({WEB: 2}, epoch=2)
    other = archiver_of(scene, store, seed=1)
    await other.run_once()
    scene.clock.now_s += SETTINGS.grace_s
    assert await other.collect() == 6
    await scene.append({WEB: 1}, epoch=2)
    report = await archiver.run_once(scene.next_seq)
    assert report is not None
    assert (report.entries, report.manifest.version) == (1, 2)
    assert not archiver.damage
    await check_logs(scene, store)


class FailingUploads(CrashingStore):
    """While `failing`, an upload of `SHOP` fails."""

    failing = True

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        if self.failing and SHOP.topic_id in key:
            raise Unavailable("no room")
        return await super().put(key, data, if_version=if_version)


async def test_a_pass_whose_upload_fails_publishes_nothing_and_the_next_one_continues() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    failing = FailingUploads(store, NEVER, after=False)
    archiver = archiver_of(scene, failing)
    with pytest.raises(Unavailable, match="no room"):
        await archiver.run_once()
    assert (await manifest_of(store)).version == -1
    await check_logs(scene, store)
    failing.failing = False
    report = await archiver.run_once()
    assert report is not None
    assert report.manifest.floor.number == scene.next_seq
    await check_logs(scene, store)


async def test_the_records_of_a_deleted_topic_are_left_out() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    report = await archiver_of(scene, store, topic_names={WEB.topic_id: "web"}.get).run_once(scene.next_seq)
    assert report is not None
    assert set(report.manifest.topics) == {WEB.topic_id}
    assert report.manifest.floor.number == scene.next_seq
    assert await keys(store, "topics/shop/") == []
