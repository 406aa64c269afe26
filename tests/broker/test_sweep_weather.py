"""Sweeps without any grace run beside a broker that archives and merges, on a store that often fails.

No acknowledged record may disappear, because the manifest alone decides what a sweep may delete.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import numbered, values_of
from tests.broker.set_clock import SetClock
from tests.storage.archive_scenes import keys
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.coordinator.topics.journal_topics import JournalTopics
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.archive.slow_sweep import SlowSweep
from tidelog.storage.bucket.sweep.bucket_sweep import SweepSettings
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import TidelogError
from tidelog.storage.layout import TOPICS_PREFIX, shard_segment_id
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
BAD_WEATHER = FaultPlan(unavailable=0.03, reset=0.03, lost_answer=0.03, delayed=0.02, delay_s_max=0.05)
NO_GRACE = SweepSettings(grace_ms=0, delete=True, pages_at_once=1)
STEPS = 25


async def in_any_order(chance: random.Random, *works: Coroutine[Any, Any, object]) -> None:
    """Run all at once; some are cut off at a random point."""
    tasks = [asyncio.ensure_future(work) for work in works]
    for task in tasks:
        if chance.random() < 0.3:
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            task.cancel()
    for task in tasks:
        with contextlib.suppress(TidelogError, asyncio.CancelledError):
            await task


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_that_lives_goes(seed: int) -> None:
    chance, clock, bucket = random.Random(seed), SetClock(), MemoryObjectStore()
    runtime = Runtime(clock, SeededEntropy(seed))
    faulty = FaultyObjectStore(bucket, FaultPlan(), runtime)
    swept = FaultyObjectStore(bucket, BAD_WEATHER, runtime)
    sweep = SlowSweep(swept, runtime, NO_GRACE, requests_per_s=1e6)
    async with running_broker(faulty, clock=clock, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {"segment.ms": 1})
        sent = [0, 0]
        for _ in range(STEPS):
            for partition in range(2):
                await broker.produce(ANYBODY, "t", numbered(sent[partition], 3), ProduceOptions(partition=partition))
                sent[partition] += 3
            faulty.plan = BAD_WEATHER
            await in_any_order(chance, broker.archive_now(), broker.upkeep_now(), sweep.run())
            faulty.plan = FaultPlan()
            clock.pass_time(chance.uniform(0, 600))
        await broker.archive_now()
        segment = (await keys(bucket, TOPICS_PREFIX))[0]
        orphan = segment.replace(shard_segment_id(segment), "cd" * 16)
        await bucket.create(orphan, (await bucket.get(segment)).data)
        for partition in range(2):
            read = values_of(await broker.fetch(ANYBODY, "t", partition, 0, ALL))
            assert read == [b"%d" % number for number in range(sent[partition])]
    swept.plan = FaultPlan()
    await sweep.run()
    assert orphan not in await keys(bucket, TOPICS_PREFIX)
    assert await errors_of(bucket, runtime) == []


async def errors_of(bucket: MemoryObjectStore, runtime: Runtime) -> list[str]:
    verification = BucketVerification(bucket, deep=True, topics=JournalTopics(bucket, runtime))
    return [finding.text async for finding in verification.findings() if finding.severity.value == "error"]
