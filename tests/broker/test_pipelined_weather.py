"""Requests in flight under faults: every batch is in the log once, in order, and where it was acknowledged."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.cluster_world import running_world
from tests.broker.drafts import values_of
from tests.broker.part_drafts import ALL
from tests.broker.pipelined_producer import PipelinedProducer
from tests.broker.test_outage import BAD_WEATHER, WELL, faulty
from tests.storage.stores.faulty import FaultPlan

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.shard.idempotence import WRAP
from tidelog.storage.stores.memory import MemoryObjectStore


async def check_log(broker: LocalBroker, producer: PipelinedProducer) -> None:
    """Each record is in the log once and in order, and an acknowledged batch begins at the offset of its answer."""
    values = [int(value) for value in values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL))]
    batches = sorted(producer.acknowledged)
    assert [offset for at, offset in batches] == [at for at, _ in batches]
    ends = [*[at for at, _ in batches][1:], len(producer.sequences)]
    # a batch that crosses the wrap has values beyond it
    expected = [producer.sequences[at] + n for (at, _), end in zip(batches, ends, strict=True) for n in range(end - at)]
    assert values == expected


SLOW = FaultPlan(slow=1.0, slow_s_max=0.01)
"""Commits take long enough that leaders are replaced while batches are in flight."""


@pytest.mark.parametrize("seed", range(4))
async def test_in_bad_weather_pipelined_batches_are_there_once_and_in_order(seed: int) -> None:
    inner = MemoryObjectStore()
    weather = faulty(inner, seed)
    async with running_broker(weather, shards=1, commit_timeout_ms=30, delete_grace_ms=10**9) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        weather.plan = BAD_WEATHER
        producer = PipelinedProducer(lambda: broker, WRAP - 40, 120)
        async with asyncio.timeout(60):
            await producer.run()
        weather.plan = WELL
        await until(lambda: broker.measurements().buffered_bytes == 0)
        await check_log(broker, producer)
    async with running_broker(inner, shards=1) as again:
        await check_log(again, producer)


async def test_leaders_that_move_and_are_usurped_lose_and_repeat_nothing_of_what_is_in_flight() -> None:
    inner = MemoryObjectStore()
    stores = {name: faulty(inner, seed) for seed, name in enumerate("ab")}
    async with running_world(stores, shards=1) as world:
        for store in stores.values():
            store.plan = SLOW
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})

        def leader() -> LocalBroker:
            return world.brokers[world.leaders[0].broker_id if 0 in world.leaders else "a"]

        producer = PipelinedProducer(leader, WRAP - 300, 600)
        producing = asyncio.create_task(producer.run())
        for turn in range(12):
            behind = len(producer.acknowledged) + 10
            await until(lambda behind=behind: len(producer.acknowledged) >= behind or producing.done())  # type: ignore[misc]
            name = "ba"[turn % 2]
            if turn % 3:
                await world.usurp(0, name)
            else:
                await world.give(0, name)
            if turn % 4 == 0:
                await world.brokers[name].archive_now()
        async with asyncio.timeout(60):
            await producing
        assert producer.retries > 0
        await check_log(leader(), producer)
