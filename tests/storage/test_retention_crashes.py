"""Retention, delete-records and the deletion of their garbage may crash, stall or run twice at any request."""

from __future__ import annotations

import asyncio

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
)
from tests.storage.record_tables import WEB, record_table

from tidelog.storage.errors import Unavailable
from tidelog.storage.layout import segment_prefix
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.collect import CollectTask
from tidelog.storage.upkeep.record_deletion import delete_records
from tidelog.storage.upkeep.retention import ExpireTask
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.task import Place
from tidelog.storage.upkeep.upkeep import Upkeep

PLACE = Place("web", WEB)
EXPIRES_BELOW, DELETED_BELOW = 6, 10
NOW_S = 1_000.0
RULES = UpkeepRules(retention_ms=int(NOW_S * 1_000) - EXPIRES_BELOW * 1_000)
"""Record *n* has the timestamp of second *n*, so segments up to offset 5 are too old."""


class StandingWallClock(ManualClock):
    """Graces pass, but no record grows older."""

    def now_ms(self) -> int:
        return int(NOW_S * 1_000)


async def scene_of(store: ObjectStore) -> Scene:
    """Three segments of three records, and three more records in the WAL."""
    scene = Scene(store, StandingWallClock(NOW_S))
    await scene.begin_epoch(1)
    for _ in range(3):
        await scene.append({WEB: 3})
        await archiver_of(scene, store).run_once()
    await scene.append({WEB: 3})
    return scene


async def work(scene: Scene, store: ObjectStore, seed: int = 0) -> None:
    """A process: expire, archive, delete records, and a grace later delete the objects."""
    runtime = scene.runtime(seed)
    upkeep = Upkeep([ExpireTask(runtime), CollectTask(store, runtime, GRACE_S)], runtime)
    log = ManifestLog(store, "web", WEB)
    await upkeep.tend(PLACE, log, RULES)
    await archiver_of(scene, store, seed=seed + 1).run_once(scene.next_seq)  # and read nothing ahead beyond it
    await delete_records(log, DELETED_BELOW)
    await upkeep.tend(PLACE, log, RULES)
    scene.clock.now_s += GRACE_S
    await upkeep.tend(PLACE, log, RULES)


async def check_log(scene: Scene, store: ObjectStore) -> int:
    """Check that the log holds all its records from its start on, once and in order (inv. 5). Return its start."""
    manifest = await manifest_of(store, WEB)
    start = manifest.log_start_offset
    assert start in (0, EXPIRES_BELOW, DELETED_BELOW)
    records = await log_of(store, WEB)
    readable = records.filter(pc.greater_equal(records.column("offset"), start))
    assert readable.equals(record_table(range(start, scene.next_offsets[WEB])))
    return start


async def check_done(scene: Scene, store: ObjectStore) -> None:
    assert await check_log(scene, store) == DELETED_BELOW
    named = [segment.key for segment in (await manifest_of(store, WEB)).segments]
    assert set(named) <= set(await keys(store, segment_prefix("web", WEB.topic_id, WEB.partition)))


async def requests_of_the_work() -> int:
    store = MemoryObjectStore()
    counting = CrashingStore(store, NEVER, after=False)
    scene = await scene_of(store)
    await work(scene, counting)
    await check_done(scene, store)
    segments = (await manifest_of(store, WEB)).segments
    assert await keys(store, segment_prefix("web", WEB.topic_id, WEB.partition)) == [segments[0].key]
    return counting.calls


async def test_a_crash_between_any_two_requests_loses_nothing_that_stays_and_the_next_process_ends_it() -> None:
    requests = await requests_of_the_work()
    assert requests > 20
    for survived in range(requests):
        for after in (False, True):
            store = MemoryObjectStore()
            scene = await scene_of(store)
            with pytest.raises(Crash):
                await work(scene, CrashingStore(store, survived, after=after))
            before = await check_log(scene, store)
            await scene.append({WEB: 2})
            assert await check_log(scene, store) == before
            await work(scene, store, seed=7)
            await check_done(scene, store)
            assert (await manifest_of(store, WEB)).garbage == ()


async def test_a_crash_before_the_grace_is_over_deletes_no_object_of_a_segment() -> None:
    """Every segment that any manifest listed still exists, for readers that planned with it."""
    for survived in range(await requests_of_the_work()):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        planned = await keys(store, segment_prefix("web", WEB.topic_id, WEB.partition))
        with pytest.raises(Crash):
            await work(scene, CrashingStore(store, survived, after=True))
        if scene.clock.now_s < NOW_S + GRACE_S:
            assert set(planned) <= set(await keys(store, segment_prefix("web", WEB.topic_id, WEB.partition)))


async def test_an_answer_lost_at_any_request_is_made_good_by_running_again() -> None:
    for survived in range(await requests_of_the_work()):
        store = MemoryObjectStore()
        scene = await scene_of(store)
        with pytest.raises(Unavailable):
            await work(scene, lost_answer(store, survived))
        await check_log(scene, store)
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
