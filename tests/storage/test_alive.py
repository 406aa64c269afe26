"""Verification, sweep and copy of a bucket in which everything happens: no false alarm, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.storage.archive_scenes import GatedStore, keys, manifest_of, state_of
from tests.storage.copy_scenes import expect_history, expect_sound
from tests.storage.known_topics import SaidTopics
from tests.storage.living_bucket import LivingBucket, NamedStore
from tests.storage.record_tables import SHOP, WEB
from tests.storage.topic_segments import decode_topic_segment

from tidelog.storage.bucket.copy.bucket_copy import BucketCopy
from tidelog.storage.bucket.copy.transfer import Transfer
from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.bucket.sweep.bucket_sweep import BucketSweep, SweepSettings
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.layout import shard_history_prefix
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.memory import MemoryObjectStore


async def findings(store: ObjectStore, *, deep: bool, runtime: Runtime | None = None) -> list[Finding]:
    verification = BucketVerification(store, deep=deep, topics=SaidTopics(), runtime=runtime)
    return [finding async for finding in verification.findings()]


async def at_each_request(
    folder: Path, act: Callable[[LivingBucket, ObjectStore], Awaitable[None]], *, stride: int = 1
) -> int:
    """Run `act` on a living bucket, which changes twice between any two of its requests. Return the number of
    requests."""
    pause, reached = 0, True
    while reached:
        store = NamedStore()
        bucket = await LivingBucket.made(store, folder)
        gated = GatedStore(store, pause)
        acting = asyncio.create_task(act(bucket, gated))
        waiting = asyncio.create_task(gated.reached.wait())
        await asyncio.wait([acting, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        reached = gated.reached.is_set()
        await bucket.goes_on()
        await bucket.goes_on()
        gated.gate.set()
        try:
            await acting
        except AssertionError as error:
            raise AssertionError(f"paused before request {pause}: {error}") from error
        pause += stride
    return pause


async def expect_segments(store: ObjectStore) -> None:
    """Check that every segment that the manifest names can be read, with all its bytes."""
    for topic_id, topic in (await manifest_of(store)).topics.items():
        for segment in topic.segments:
            place = SegmentPlace(topic.name, topic_id, 0)
            decode_topic_segment(segment, place, (await store.get(segment.key)).data)


async def test_the_living_bucket_lives(tmp_path: Path) -> None:
    """Without this the tests below would prove nothing."""
    store = MemoryObjectStore()
    await LivingBucket.made(store, tmp_path)
    web = (await manifest_of(store)).topics[WEB.topic_id]
    assert web.partition(0).log_start_offset > 0
    assert any(segment.level > 0 for segment in web.segments)
    assert (await state_of(store, SHOP)).clean_end > 0
    assert await keys(store, shard_history_prefix(0)) != []
    await expect_history(store)
    assert await findings(store, deep=True) == []


@pytest.mark.parametrize("deep", [False, True])
async def test_verification_gives_no_false_alarm(tmp_path: Path, deep: bool) -> None:
    async def verified(bucket: LivingBucket, store: ObjectStore) -> None:
        found = await findings(store, deep=deep, runtime=bucket.scene.runtime())
        assert found == []

    assert await at_each_request(tmp_path, verified, stride=4 if deep else 2) > 20


async def test_a_sweep_without_any_grace_deletes_nothing_that_lives(tmp_path: Path) -> None:
    async def swept(bucket: LivingBucket, store: ObjectStore) -> None:
        runtime = Runtime(bucket.scene.clock, SeededEntropy(9))
        sweep = BucketSweep(store, SaidTopics(), runtime, SweepSettings(grace_ms=0, delete=True))
        assert [stray async for stray in sweep.strays()] == []
        await bucket.goes_on()
        await expect_segments(bucket.store)
        found = await findings(bucket.store, deep=True)
        # meeting the sweep's version, a worker uploads again; the next sweep deletes the first upload
        assert [finding for finding in found if finding.severity is not Severity.ORPHAN] == []

    assert await at_each_request(tmp_path, swept) > 5


async def test_a_copy_is_sound(tmp_path: Path) -> None:
    async def copied(bucket: LivingBucket, store: ObjectStore) -> None:
        target = MemoryObjectStore()
        acknowledged = dict(bucket.scene.next_offsets)
        runtime = Runtime(bucket.scene.clock, SeededEntropy(5))
        assert (await BucketCopy(Transfer(store, target), SaidTopics(), "one", runtime).run()).whole
        assert await findings(target, deep=True) == []
        await expect_sound(target)
        await LivingBucket(target, bucket.scene, tmp_path).archiver.run_once()
        for place, offset in acknowledged.items():
            assert (await state_of(target, place)).cold_end >= offset
        await expect_segments(target)
        assert await findings(target, deep=True) == []

    assert await at_each_request(tmp_path, copied, stride=3) > 30
