"""Requests that are spread over several leaders and fail in part, and the objects of a deleted topic."""

import asyncio
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import until
from tests.broker.cluster_world import CLUSTER, World, running_world
from tests.broker.drafts import draft, numbered, values_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.set_clock import GRACE_S, SetClock

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.storage.errors import Fenced, Invalid, LeaderUnknown, Unavailable
from tidelog.storage.layout import topic_prefix
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

ALL = FetchLimits(1_000_000, 1 << 30)
NAMES = ("a", "b", "c")


def one_each(partitions: int) -> Draft:
    return draft([b"%d" % n for n in range(partitions)], partitions=list(range(partitions)))


async def led_by(world: World, name: str, topic: str) -> list[int]:
    shards = (await world.brokers[name].known_topic(ANYBODY, topic)).shards
    return [number for number, shard in enumerate(shards) if world.leaders[shard].broker_id == name]


async def test_a_part_that_is_fenced_fails_the_request_which_says_what_is_in_the_log() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_world({"a": gated, "b": inner, "c": inner}) as world:
        c = world.brokers["c"]
        await c.create_topic(ANYBODY, "t", 3, {})
        (lost,) = await led_by(world, "a", "t")
        gated.hold()
        producing = asyncio.create_task(c.produce(ANYBODY, "t", one_each(3), ProduceOptions()))
        await gated.arrived.wait()
        await world.usurp(c.topic(ANYBODY, "t").shards[lost], "b")
        gated.gate.set()
        with pytest.raises((Fenced, Unavailable)) as failure:
            await producing
        assert failure.value.committed == tuple(number for number in range(3) if number != lost)
        for number in range(3):
            assert len(values_of(await c.fetch(ANYBODY, "t", number, 0, ALL))) == (number != lost)


async def test_a_part_that_nobody_took_fails_the_request_which_says_what_is_in_the_log() -> None:
    stores = dict.fromkeys(NAMES, MemoryObjectStore())
    async with running_world(stores, settings=replace(CLUSTER, forward_timeout_ms=50)) as world:
        c = world.brokers["c"]
        await c.create_topic(ANYBODY, "t", 3, {})
        (untaken,) = await led_by(world, "a", "t")
        await world.take(c.topic(ANYBODY, "t").shards[untaken])
        with pytest.raises(Unavailable, match="only a part of the request was applied") as failure:
            await c.produce(ANYBODY, "t", one_each(3), ProduceOptions())
        assert failure.value.committed == tuple(number for number in range(3) if number != untaken)
        told = await c.produce(ANYBODY, "t", one_each(3), ProduceOptions(tell_each=True))
        assert [answer.partition for answer in told] == [0, 1, 2]
        assert [answer.partition for answer in told if isinstance(answer.error, LeaderUnknown)] == [untaken]
        assert [answer.base_offset for answer in told if answer.error is None] == [1, 1]


async def test_a_request_of_which_nothing_was_taken_says_so() -> None:
    stores = dict.fromkeys(NAMES, MemoryObjectStore())
    async with running_world(stores, settings=replace(CLUSTER, forward_timeout_ms=50)) as world:
        c = world.brokers["c"]
        await c.create_topic(ANYBODY, "t", 3, {})
        for shard in range(3):
            await world.take(shard)
        with pytest.raises(LeaderUnknown):
            await c.produce(ANYBODY, "t", one_each(3), ProduceOptions())
        with pytest.raises(Invalid):
            await c.produce(ANYBODY, "t", one_each(4), ProduceOptions())


async def test_the_leader_of_each_shard_removes_a_deleted_topic_from_it_and_nobody_elses_objects() -> None:
    store = MemoryObjectStore()
    counted = {name: CountingObjectStore(store) for name in NAMES}
    clock = SetClock()
    async with running_world(counted, clock=clock) as world:
        a, b, c = (world.brokers[name] for name in NAMES)
        gone, kept = await a.create_topic(ANYBODY, "t", 3, {}), await a.create_topic(ANYBODY, "kept", 3, {})
        for number in range(3):
            await b.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=number))
            await b.produce(ANYBODY, "kept", numbered(0, 5), ProduceOptions(partition=number))
        for broker in (a, b, c):
            await broker.archive_now()
        await c.delete_topic(ANYBODY, "t")
        await until(lambda: all(len(broker.topics(ANYBODY)) == 1 for broker in (a, b, c)))
        for broker in (a, b, c):
            await broker.archive_now()
        assert await store.list(topic_prefix("t", gone.topic_id))
        clock.pass_time(GRACE_S)
        for broker in (a, b, c):
            await broker.upkeep_now()
            await broker.archive_now()
        assert not await store.list(topic_prefix("t", gone.topic_id))
        leaders = {world.leaders[shard].broker_id for shard in gone.shards}
        assert {name for name in NAMES if counted[name].usage().requests(Verb.DELETE)} == leaders
        assert len(await store.list(topic_prefix("kept", kept.topic_id))) == 3
        for number in range(3):
            assert len(values_of(await a.fetch(ANYBODY, "kept", number, 0, ALL))) == 5
