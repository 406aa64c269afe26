"""delete-records in a cluster: any broker is asked, the leader does it; a shard that moves keeps where it begins."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.brokers import until
from tests.broker.cluster_world import World, running_world
from tests.broker.drafts import numbered, offsets_of
from tests.broker.set_clock import SetClock

from tidelog.services.broker.api import FetchLimits, ProduceOptions
from tidelog.storage.errors import NotLeader, OutOfRange
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
NAMES = ("a", "b", "c")


async def a_topic(world: World, records: int = 10) -> str:
    """Partition 0 of a new topic has so many records; who leads it."""
    topic = await world.brokers["a"].create_topic("t", 1, {})
    await world.brokers["a"].produce("t", numbered(0, records), TO_ZERO)
    return world.leaders[topic.shards[0]].broker_id


async def test_any_broker_is_asked_and_the_leader_does_it() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore())) as world:
        leader = await a_topic(world)
        for offset, name in enumerate(NAMES, start=3):
            assert await world.brokers[name].delete_records("t", 0, offset) == offset
        for name in NAMES:
            with pytest.raises(OutOfRange) as refused:
                await world.brokers[name].delete_records("t", 0, 11)
            assert (refused.value.log_start_offset, refused.value.high_watermark) == (5, 10)
        for name in NAMES:
            assert await world.brokers[name].delete_records("t", 0, -1) == 10
        other = next(name for name in NAMES if name != leader)
        with pytest.raises(NotLeader):
            await world.brokers[other].here.delete_records("t", 0, 1)


async def test_a_shard_that_moves_begins_where_it_began() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore())) as world:
        leader = await a_topic(world)
        shard = world.brokers["a"].topic("t").shards[0]
        assert await world.brokers[leader].delete_records("t", 0, 6) == 6
        next_leader = next(name for name in NAMES if name != leader)
        await world.give(shard, next_leader)
        for name in NAMES:
            assert offsets_of(await world.brokers[name].fetch("t", 0, 6, ALL)) == [6, 7, 8, 9]
            with pytest.raises(OutOfRange):
                await world.brokers[name].fetch("t", 0, 5, ALL)
        assert await world.brokers[leader].delete_records("t", 0, 8) == 8


async def test_a_call_whose_leader_dies_is_made_at_the_next() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore())) as world:
        leader = await a_topic(world)
        shard = world.brokers["a"].topic("t").shards[0]
        other, heir = (name for name in NAMES if name != leader)
        await world.take(shard)
        waiting = asyncio.create_task(world.brokers[other].delete_records("t", 0, 7))
        await world.usurp(shard, heir)
        assert await waiting == 7


async def test_a_reader_of_cold_records_elsewhere_hears_of_it_within_minutes() -> None:
    """Who does not lead reads by a manifest that it kept, though not for ever."""
    clock = SetClock()
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), clock=clock) as world:
        leader = await a_topic(world)
        other = world.brokers[next(name for name in NAMES if name != leader)]
        await world.brokers[leader].archive_now()
        assert offsets_of(await other.fetch("t", 0, 0, ALL)) == list(range(10))
        await other.delete_records("t", 0, 6)
        clock.pass_time(301.0)
        with pytest.raises(OutOfRange) as refused:
            await other.fetch("t", 0, 0, ALL)
        assert refused.value.log_start_offset == 6
        assert offsets_of(await other.fetch("t", 0, 6, ALL)) == [6, 7, 8, 9]


async def test_retention_goes_on_at_the_next_leader() -> None:
    clock = SetClock()
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), clock=clock) as world:
        leader = await a_topic(world)
        shard = world.brokers["a"].topic("t").shards[0]
        await world.brokers[leader].archive_now()
        heir = next(name for name in NAMES if name != leader)
        await world.give(shard, heir)
        clock.pass_time(8 * 86_400.0)
        topic = world.brokers[heir].topic("t")
        state = await world.brokers[heir].here.shards.leading(shard).partitions.load(topic, 0)
        await until(lambda: state.log_start_offset == 10)
