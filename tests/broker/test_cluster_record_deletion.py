"""delete-records in a cluster: any broker takes the request and the leader carries it out; a shard that moves keeps its
log start."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import until
from tests.broker.cluster_world import CLUSTER, World, running_world
from tests.broker.drafts import numbered, offsets_of
from tests.broker.set_clock import SetClock
from tests.coordinator.stepped_clock import SteppedClock

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.cluster.cold_reader import ColdReader
from tidelog.services.broker.shard.leadership_proof import READERS_TRUST_S
from tidelog.services.runtime.wiring import broker_parts
from tidelog.storage.errors import LeaderUnknown, NotLeader, OutOfRange
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
NAMES = ("a", "b", "c")
HASTY = replace(CLUSTER, forward_timeout_ms=50)


async def a_topic(world: World, records: int = 10) -> str:
    """Create a topic whose partition 0 has `records` records; return its leader."""
    topic = await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
    await world.brokers["a"].produce(ANYBODY, "t", numbered(0, records), TO_ZERO)
    return world.leaders[topic.shards[0]].broker_id


async def test_any_broker_is_asked_and_the_leader_does_it() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore())) as world:
        leader = await a_topic(world)
        for offset, name in enumerate(NAMES, start=3):
            assert await world.brokers[name].delete_records(ANYBODY, "t", 0, offset) == offset
        for name in NAMES:
            with pytest.raises(OutOfRange) as refused:
                await world.brokers[name].delete_records(ANYBODY, "t", 0, 11)
            assert (refused.value.log_start_offset, refused.value.high_watermark) == (5, 10)
        assert await world.brokers["b"].delete_records(ANYBODY, "t", 0, -1) == 10
        other = next(name for name in NAMES if name != leader)
        with pytest.raises(NotLeader):
            await world.brokers[other].delete_records(ANYBODY.not_forwarded(), "t", 0, 1)


async def test_a_shard_that_moves_begins_where_it_began() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore())) as world:
        leader = await a_topic(world)
        shard = world.brokers["a"].topic(ANYBODY, "t").shards[0]
        assert await world.brokers[leader].delete_records(ANYBODY, "t", 0, 6) == 6
        next_leader = next(name for name in NAMES if name != leader)
        await world.give(shard, next_leader)
        for name in NAMES:
            assert offsets_of(await world.brokers[name].fetch(ANYBODY, "t", 0, 6, ALL)) == [6, 7, 8, 9]
            with pytest.raises(OutOfRange):
                await world.brokers[name].fetch(ANYBODY, "t", 0, 5, ALL)
        assert await world.brokers[leader].delete_records(ANYBODY, "t", 0, 8) == 8


async def test_a_call_whose_leader_dies_is_made_at_the_next() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore())) as world:
        leader = await a_topic(world)
        shard = world.brokers["a"].topic(ANYBODY, "t").shards[0]
        other, heir = (name for name in NAMES if name != leader)
        await world.take(shard)
        waiting = asyncio.create_task(world.brokers[other].delete_records(ANYBODY, "t", 0, 7))
        await world.usurp(shard, heir)
        assert await waiting == 7


async def test_once_it_is_answered_no_reader_through_any_broker_gets_the_records() -> None:
    """Each broker has just read the records. Brokers that do not lead read by a manifest that they keep."""
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore())) as world:
        leader = await a_topic(world)
        await world.brokers[leader].archive_now()
        reading = [asyncio.create_task(read_on(world, name)) for name in NAMES]
        for offset in (3, 6):
            assert await world.brokers["a"].delete_records(ANYBODY, "t", 0, offset) == offset
            for name in NAMES:
                with pytest.raises(OutOfRange) as refused:
                    await world.brokers[name].fetch(ANYBODY, "t", 0, offset - 1, ALL)
                assert refused.value.log_start_offset == offset
                assert offsets_of(await world.brokers[name].fetch(ANYBODY, "t", 0, 6, ALL)) == [6, 7, 8, 9]
        for reader in reading:
            reader.cancel()
        assert {type(end) for end in await asyncio.gather(*reading, return_exceptions=True)} == {asyncio.CancelledError}


async def read_on(world: World, name: str) -> None:
    """Read the remaining records again and again, so that the broker's knowledge stays fresh."""
    while True:
        assert offsets_of(await world.brokers[name].fetch(ANYBODY, "t", 0, 6, ALL)) == [6, 7, 8, 9]
        await asyncio.sleep(0.02)


async def test_brokers_that_are_cut_off_from_etcd_do_not_give_deleted_records_either() -> None:
    """`a` still believes that it leads, and `c` believes so too."""
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys(NAMES, store), shards=1, settings=HASTY) as world:
        await a_topic(world)
        await world.brokers["a"].archive_now()
        for name in NAMES:
            assert len(offsets_of(await world.brokers[name].fetch(ANYBODY, "t", 0, 0, ALL))) == 10
        world.coordinations["a"].cut_off()
        world.coordinations["c"].cut_off()
        await world.usurp(0, "b")
        assert await world.brokers["b"].delete_records(ANYBODY, "t", 0, 6) == 6
        for name in NAMES:
            with pytest.raises((OutOfRange, LeaderUnknown)):
                await world.brokers[name].fetch(ANYBODY, "t", 0, 5, ALL)
            assert offsets_of(await world.brokers[name].fetch(ANYBODY, "t", 0, 6, ALL)) == [6, 7, 8, 9]


async def test_a_leader_that_is_replaced_meanwhile_does_not_say_that_records_are_deleted() -> None:
    """The new leader may use a manifest that it read earlier."""
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), shards=1, settings=HASTY) as world:
        await a_topic(world)
        a, b = world.brokers["a"], world.brokers["b"]
        deleting = asyncio.create_task(a.delete_records(ANYBODY.not_forwarded(), "t", 0, 6))
        (state,) = tuple(a.shards.leading(0).partitions)
        await until(lambda: state.log_start_offset == 6)
        world.coordinations["a"].cut_off()
        await world.usurp(0, "b")
        with pytest.raises(LeaderUnknown):
            await deleting
        assert await b.delete_records(ANYBODY, "t", 0, 6) == 6


async def test_a_replay_elsewhere_asks_for_a_newer_manifest_twice_a_second_and_lists_nothing() -> None:
    store, clock = MemoryObjectStore(), SteppedClock()
    counting = CountingObjectStore(store)
    async with running_world(dict.fromkeys(NAMES, store), shards=1) as world:
        await a_topic(world)
        await world.brokers["a"].archive_now()
        cold = ColdReader(counting, broker_parts(CLUSTER, Runtime(), counting).reader, Runtime(clock))
        topic = world.brokers["a"].topic(ANYBODY, "t")
        before = counting.usage()
        for _ in range(100):
            assert await cold.fetch(topic, 0, 0, ALL, leader_known=True)
            clock.advance(0.1)
        spent = counting.usage() - before
        assert spent.requests(Verb.LIST) == 1
        assert 10 / READERS_TRUST_S / 2 <= spent.requests(Verb.HEAD) <= 2 * 10 / READERS_TRUST_S


async def test_retention_continues_at_the_next_leader() -> None:
    clock = SetClock()
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), clock=clock) as world:
        leader = await a_topic(world)
        shard = world.brokers["a"].topic(ANYBODY, "t").shards[0]
        await world.brokers[leader].archive_now()
        heir = next(name for name in NAMES if name != leader)
        await world.give(shard, heir)
        clock.pass_time(8 * 86_400.0)
        topic = world.brokers[heir].topic(ANYBODY, "t")
        state = await world.brokers[heir].shards.leading(shard).partitions.load(topic, 0)
        await until(lambda: state.log_start_offset == 10)
