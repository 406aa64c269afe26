"""Retention, delete-records and the deletion of their garbage may crash, stall or run twice at any request, over
segments that two partitions share."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pyarrow.compute as pc
import pytest
from tests.storage.archive_scenes import (
    GRACE_S,
    NEVER,
    Crash,
    CrashingStore,
    GatedStore,
    ManualClock,
    Scene,
    archiver_of,
    keys,
    log_of,
    lost_answer,
    manifest_of,
    state_of,
)
from tests.storage.record_tables import WEB, WEB_1, record_table
from tests.storage.tending import tend

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.layout import TopicPartition, topic_prefix
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.log_starts import delete_records
from tidelog.storage.upkeep.retention import ExpireTask
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.upkeep import Upkeep

PLACE = SegmentPlace("web", WEB.topic_id, 0)
EXPIRES_BELOW, DELETED_BELOW = 6, 10
NOW_S = 1_000.0
RULES = UpkeepRules(retention_ms=int(NOW_S * 1_000) - EXPIRES_BELOW * 1_000)
"""Record *n* has the timestamp of second *n*, so the segments with offsets up to 5 of partition 0 are too old."""
STARTS = {WEB: (0, EXPIRES_BELOW, DELETED_BELOW), WEB_1: (0, 2)}
"""The log starts that a reader may see. The segments that expire have the first two records of partition 1."""


class StandingWallClock(ManualClock):
    """Graces pass, but no record grows older."""

    def now_ms(self) -> int:
        return int(NOW_S * 1_000)


async def scene_of(store: ObjectStore) -> Scene:
    """Three segments of four records, and four more records in the WAL."""
    scene = Scene(store, StandingWallClock(NOW_S))
    await scene.begin_epoch(1)
    for number in range(3):
        await scene.append({WEB: 3, WEB_1: 1})
        await archiver_of(scene, store, seed=10 + number).run_once()
    await scene.append({WEB: 3, WEB_1: 1})
    return scene


async def work(scene: Scene, store: ObjectStore, seed: int = 0) -> None:
    """A process: expire, archive, delete records, and a grace later delete the objects."""
    runtime = scene.runtime(seed)
    upkeep, collector = Upkeep([ExpireTask(runtime)], runtime), Collector(store, runtime, GRACE_S, lambda _: 0)
    log = ShardLog(store, 0, runtime)
    await tend(upkeep, PLACE, log, RULES)
    with suppress(Conflict):  # another worker has archived the records
        await archiver_of(scene, store, seed=seed + 1).run_once(scene.next_seq)
    await delete_records(log, PLACE, WEB.partition, DELETED_BELOW)
    await collector.run(log)
    scene.clock.now_s += GRACE_S
    await collector.run(log)


async def starts(store: ObjectStore) -> dict[TopicPartition, int]:
    return {place: (await state_of(store, place)).log_start_offset for place in STARTS}


async def check_logs(scene: Scene, store: ObjectStore) -> dict[TopicPartition, int]:
    """Check that each log holds all its records from its start on, once and in order (inv. 5). Return the starts."""
    found = await starts(store)
    for place, start in found.items():
        assert start in STARTS[place]
        records = await log_of(store, place)
        readable = records.filter(pc.greater_equal(records.column("offset"), start))
        assert readable.equals(record_table(range(start, scene.next_offsets[place])))
    return found


async def check_done(scene: Scene, store: ObjectStore) -> None:
    assert await check_logs(scene, store) == {WEB: DELETED_BELOW, WEB_1: 2}
    assert await named(store) <= await segment_objects(store)


async def named(store: ObjectStore) -> set[str]:
    return {segment.key for segment in (await manifest_of(store)).topics[WEB.topic_id].segments}


async def segment_objects(store: ObjectStore) -> set[str]:
    return set(await keys(store, topic_prefix("web", WEB.topic_id)))


async def requests_of_the_work() -> int:
    store = MemoryObjectStore()
    counting = CrashingStore(store, NEVER, after=False)
    scene = await scene_of(store)
    await work(scene, counting)
    await check_done(scene, store)
    assert await segment_objects(store) == await named(store)
    assert len(await named(store)) == 2, "the segment with offsets 6 to 8 of partition 0 has records of partition 1"
    return counting.calls


async def test_a_crash_between_any_two_requests_loses_nothing_that_stays_and_the_next_process_ends_it() -> None:
    requests = await requests_of_the_work()
    assert requests > 12
    for survived in range(requests):
        for after in (False, True):
            store = MemoryObjectStore()
            scene = await scene_of(store)
            with pytest.raises(Crash):
                await work(scene, CrashingStore(store, survived, after=after))
            before = await check_logs(scene, store)
            await scene.append({WEB: 2})
            assert await check_logs(scene, store) == before
            await work(scene, store, seed=7)
            await check_done(scene, store)
            assert (await manifest_of(store)).garbage == ()


async def test_a_crash_before_the_grace_is_over_deletes_no_object_of_a_segment() -> None:
    """Every segment that any version listed still exists, for readers that planned with it."""
    for survived in range(await requests_of_the_work()):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        planned = await segment_objects(store)
        with pytest.raises(Crash):
            await work(scene, CrashingStore(store, survived, after=True))
        if scene.clock.now_s < NOW_S + GRACE_S:
            assert planned <= await segment_objects(store)


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again() -> None:
    for survived in range(await requests_of_the_work()):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        with pytest.raises(Unavailable):
            await work(scene, lost_answer(store, survived))
        await check_logs(scene, store)
        await work(scene, store, seed=7)
        await check_done(scene, store)


async def test_two_workers_do_not_harm_each_other() -> None:
    """The second worker does all its work between any two requests of the first."""
    for pause in range(await requests_of_the_work()):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        gated = GatedStore(store, pause)
        first = asyncio.create_task(work(scene, gated))
        await gated.reached.wait()
        await work(scene, store, seed=7)
        await scene.append({WEB: 2})
        await check_done(scene, store)
        gated.gate.set()
        await first
        await check_done(scene, store)
