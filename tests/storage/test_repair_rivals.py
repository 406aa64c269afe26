"""A repair that crashes, or a broker that archives, between any two requests."""

from __future__ import annotations

import asyncio

import pytest
from tests.storage.archive_scenes import (
    NEVER,
    PLACES,
    Crash,
    CrashingStore,
    GatedStore,
    archiver_of,
)
from tests.storage.damage_by_hand import flip
from tests.storage.record_tables import SHOP, WEB, WEB_1
from tests.storage.repair_scenes import HELD, Damaged, Lost


async def badly_damaged() -> Damaged:
    """Two entries, a segment and the newest version are lost."""
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    for _ in range(3):
        await bucket.scene.append(dict.fromkeys(PLACES, 1), epoch=2)
    await flip(bucket.store, bucket.scene.log.key(1))
    await bucket.store.delete(await first_segment(bucket))
    await bucket.store.delete_many([bucket.scene.wal.key(seq) for seq in (7,)])
    return bucket


async def first_segment(bucket: Damaged) -> str:
    manifest = await bucket.scene.log.read(0)
    return next(iter(manifest.topics[WEB.topic_id].segments)).key


BADLY_LOST: Lost = {WEB: [0, 1, 2, 3, 8], WEB_1: [0, 1, 2, 3, 7], SHOP: [5]}


async def test_much_damage_is_repaired_at_once() -> None:
    bucket = await badly_damaged()
    await bucket.repaired()
    await bucket.check(BADLY_LOST)


async def test_a_crash_between_any_two_requests_is_made_good_by_running_again() -> None:
    bucket = await badly_damaged()
    counting = CrashingStore(bucket.store, NEVER, after=False)
    await bucket.repair(counting).apply(await bucket.repair().plan())
    for survived in range(counting.calls):
        bucket = await badly_damaged()
        crashing = CrashingStore(bucket.store, survived, after=True)
        plan = await bucket.repair().plan()
        with pytest.raises(Crash):
            await bucket.repair(crashing).apply(plan)
        await bucket.repaired()
        await bucket.check(BADLY_LOST)


async def test_a_broker_that_archives_between_any_two_requests_changes_nothing() -> None:
    pause, reached = 0, True
    while reached:
        bucket = await Damaged().filled(archived=1)
        await bucket.scene.append({WEB: 1}, epoch=2)
        await bucket.store.delete(bucket.scene.wal.key(4))
        plan = await bucket.repair().plan()
        gated = GatedStore(bucket.store, pause)
        applying = asyncio.create_task(bucket.repair(gated).apply(plan))
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([applying, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        await archiver_of(bucket.scene, bucket.store, seed=5).run_once()
        gated.gate.set()
        await applying
        await bucket.check(HELD[4])
        pause += 1
    assert pause > 5
