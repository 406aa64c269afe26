"""A pass of the archiver over the manifest of a shard: what it stores, what it costs, and that a crash between any two
requests loses and doubles nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

import pyarrow as pa
import pytest
from tests.storage.archive_scenes import (
    TOPIC_NAMES,
    Crash,
    CrashingStore,
    GatedStore,
    Scene,
    lost_answer,
    small_scene,
)
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table

from tidelog.storage.archive.shard_archiver import ArchiverSettings, ShardArchiver
from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind, LeaderEpoch
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.records import RECORD_SCHEMA, from_stored
from tidelog.storage.segments.topic_segment import SegmentPlace, decode_topic_segment
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec


def archiver_of(
    scene: Scene, store: ObjectStore, seed: int = 0, settings: ArchiverSettings | None = None
) -> ShardArchiver:
    """An archiver like that of a new process: it knows only the bucket."""
    runtime, wal = scene.runtime(seed), Wal(store, 0, ParquetWalCodec())
    return ShardArchiver(store, wal, ShardLog(store, 0, runtime), runtime, TOPIC_NAMES.get, settings)


async def newest(store: ObjectStore) -> ShardManifest:
    log = ShardLog(store, 0, Scene(store).runtime())
    manifest = await log.latest()
    return await log.with_lists(manifest, manifest.topics)


async def log_of(store: ObjectStore, place: TopicPartition, next_seq: int) -> pa.Table:
    """A partition as readers see it: the segments of the manifest, then the WAL from the cold end (inv. 5)."""
    manifest = await newest(store)
    tables = [RECORD_SCHEMA.empty_table()]
    cold_end = 0
    if topic := manifest.topics.get(place.topic_id):
        cold_end = topic.partition(place.partition).cold_end
        at = SegmentPlace(topic.name, place.topic_id, 0)
        for found in topic.segments.spans(place.partition):
            rows = decode_topic_segment(found.segment, at, (await store.get(found.segment.key)).data)
            tables.append(from_stored(rows.slice(found.first_row, found.span.records)).drop_columns(["partition"]))
    wal = Wal(store, 0, ParquetWalCodec())
    for seq in range(manifest.floor.number, next_seq):
        entry = await wal.read(seq)
        for span in entry.header.spans:
            if span.topic_partition == place and span.next_offset > cold_end:
                tables.append(entry.records_of(span).slice(max(0, cold_end - span.base_offset)))
    return pa.concat_tables(tables)


async def check_logs(scene: Scene, store: ObjectStore) -> None:
    """Each partition holds all its records, once and in order (inv. 5)."""
    for place, next_offset in scene.next_offsets.items():
        assert (await log_of(store, place, scene.next_seq)).equals(record_table(range(next_offset))), place


async def test_a_pass_is_one_segment_per_topic_and_one_version() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    counting = CountingObjectStore(store)
    report = await archiver_of(scene, counting).run_once(scene.next_seq)
    assert report is not None
    assert (report.entries, report.records, report.manifest.version) == (5, 13, 0)
    assert report.manifest.floor.number == scene.next_seq
    assert set(report.segments) == set(TOPIC_NAMES)
    usage = counting.usage()
    assert usage.requests(Verb.PUT) + usage.requests(Verb.CREATE) == 3
    assert (usage.requests(Verb.LIST), usage.requests(Verb.GET)) == (1, 5)
    await check_logs(scene, store)
    web = report.manifest.topics[WEB.topic_id]
    assert [span.partition for span in report.segments[WEB.topic_id].spans] == [0, 1]
    assert web.partition(0).epochs == (LeaderEpoch(1, 0), LeaderEpoch(2, 4))
    assert [known.mark.producer_id for known in web.partition(0).producers] == ["p"]


async def test_the_next_pass_continues_and_costs_no_listing() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    counting = CountingObjectStore(store)
    archiver = archiver_of(scene, counting)
    await archiver.run_once(scene.next_seq)
    await scene.append({WEB: 5, SHOP: 1})
    before = counting.usage()
    report = await archiver.run_once(scene.next_seq)
    spent = counting.usage() - before
    assert report is not None
    assert (report.records, report.manifest.topics[WEB.topic_id].next_run) == (6, 2)
    assert (spent.requests(Verb.LIST), spent.requests(Verb.GET), spent.requests()) == (0, 1, 4)
    await check_logs(scene, store)
    assert await archiver.run_once(scene.next_seq) is None


async def test_a_pass_takes_as_many_entries_as_fit() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store, settings=ArchiverSettings(batch_bytes=1))
    passes = 0
    while await archiver.run_once(scene.next_seq):
        passes += 1
        await check_logs(scene, store)
    assert passes == 5


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_between_any_two_requests_loses_and_doubles_nothing(after: bool) -> None:
    crashed = 0
    for operations in range(40):
        store = MemoryObjectStore()
        scene = await small_scene(store)
        try:
            await archiver_of(scene, CrashingStore(store, operations, after=after)).run_once(scene.next_seq)
        except Crash:
            crashed += 1
        await check_logs(scene, store)
        await archiver_of(scene, store, seed=1).run_once(scene.next_seq)
        await check_logs(scene, store)
        assert (await newest(store)).floor.number == scene.next_seq
    assert 8 <= crashed < 40


async def test_a_lost_answer_of_any_request_loses_and_doubles_nothing() -> None:
    for operations in range(12):
        store = MemoryObjectStore()
        scene = await small_scene(store)
        archiver = archiver_of(scene, lost_answer(store, operations))
        for _ in range(2):
            try:
                await archiver.run_once(scene.next_seq)
            except Unavailable:
                await check_logs(scene, store)
        assert (await newest(store)).floor.number == scene.next_seq
        await check_logs(scene, store)


async def test_of_two_archivers_one_publishes_and_the_other_starts_over() -> None:
    for held in range(10):
        store = MemoryObjectStore()
        scene = await small_scene(store)
        gated = GatedStore(store, held)
        slow = asyncio.create_task(archiver_of(scene, gated, seed=1).run_once(scene.next_seq))
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([slow, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await archiver_of(scene, store, seed=2).run_once(scene.next_seq)
        gated.gate.set()
        with suppress(Conflict):
            await slow
        await check_logs(scene, store)
        assert (await newest(store)).floor.number == scene.next_seq


async def test_a_version_of_another_worker_costs_no_second_upload() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(3)
    other = ShardLog(store, 0, scene.runtime(9))
    await other.latest()
    await other.append(ManifestChange(ChangeKind.COLLECT))
    counting = CountingObjectStore(store)
    archiver._uploads._store = counting
    report = await archiver.run_once(scene.next_seq)
    assert report is not None
    assert report.manifest.version == 2
    assert counting.usage().requests(Verb.PUT) == 2
    await check_logs(scene, store)


async def test_a_sweep_in_between_makes_it_upload_again() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    archiver = archiver_of(scene, store)
    await archiver.run_once(3)
    other = ShardLog(store, 0, scene.runtime(9))
    await other.latest()
    await other.append(ManifestChange(ChangeKind.SWEEP))
    report = await archiver.run_once(scene.next_seq)
    assert report is not None
    kept = {segment.key for topic in report.manifest.topics.values() for segment in topic.segments}
    stored = {info.key async for info in list_all(store, "topics/")}
    assert kept < stored, "the first upload is an orphan now"
    await check_logs(scene, store)


async def test_the_records_of_a_deleted_topic_are_left_out() -> None:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    runtime, wal = scene.runtime(), Wal(store, 0, ParquetWalCodec())
    names = {WEB.topic_id: "web"}
    report = await ShardArchiver(store, wal, ShardLog(store, 0, runtime), runtime, names.get).run_once(scene.next_seq)
    assert report is not None
    assert set(report.manifest.topics) == {WEB.topic_id}
    assert report.manifest.floor.number == scene.next_seq


async def test_many_partitions_share_segments() -> None:
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
    assert WEB_1 in scene.next_offsets
