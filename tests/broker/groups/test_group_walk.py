"""The walk over groups that nobody calls."""

import asyncio

from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.fast_clock import FastClock

from tidelog.services.broker.groups.group_walk import GroupWalk
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire import groups as calls

COMMIT = calls.CommitOffsets(offsets=(calls.PartitionOffset(topic="web", partition=0, offset=1),))
RETENTION_MS = 60_000


async def listed(broker: LocalBroker) -> list[str]:
    return [group.group for group in (await broker.groups.groups(ANYBODY)).groups]


async def test_offsets_of_a_group_that_nobody_calls_expire() -> None:
    store, clock = MemoryObjectStore(), FastClock(1_000)
    async with running_broker(store, clock=clock, offsets_retention_ms=RETENTION_MS) as broker:
        await broker.create_topic(ANYBODY, "web", 1, {})
        await broker.groups.call(ANYBODY, "quiet", COMMIT)
    async with running_broker(store, clock=clock, offsets_retention_ms=RETENTION_MS) as broker:
        await broker.groups.call(ANYBODY, "another", COMMIT)
        async with asyncio.timeout(60):
            while "quiet" in await listed(broker):
                await clock.sleep(5)


async def test_a_broker_that_nobody_asks_about_groups_does_not_walk() -> None:
    store, clock = MemoryObjectStore(), FastClock(1_000)
    async with running_broker(store, clock=clock, offsets_retention_ms=RETENTION_MS) as broker:
        walk = GroupWalk(broker.local_groups, Runtime(clock), RETENTION_MS)
        for _ in range(100):
            await walk.step()
            await clock.sleep(10)
        assert not await store.list("groups/")
