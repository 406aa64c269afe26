"""Classic groups in a cluster: barriers and generations while the coordinator moves."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import until
from tests.broker.cluster_world import CLUSTER, World, running_world
from tests.coordinator.groups.classic_group import beat, join, leave, sync

from tidelog.services.broker.api.groups import Groups
from tidelog.storage.errors import MemberFenced, RebalanceInProgress
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire import groups as calls
from tidelog.wire.classic_groups import JoinedGroup

NAMES = tuple(f"group-{number}" for number in range(12))


def two_brokers(initial_delay_ms: int) -> AbstractAsyncContextManager[World]:
    bucket = MemoryObjectStore()
    settings = replace(CLUSTER, group_initial_rebalance_delay_ms=initial_delay_ms)
    return running_world({"a": bucket, "b": bucket}, 2, settings)


def led_by(world: World, broker: str) -> str:
    """A group whose coordinator is `broker`."""
    return next(name for name in NAMES if world.brokers[broker].groups.coordinator(ANYBODY, name).local)


async def assigned(groups: Groups, group: str, joined: JoinedGroup) -> bytes:
    return (await groups.call(ANYBODY, group, sync(joined))).assignment


async def stable(world: World, group: str) -> list[JoinedGroup]:
    """Two members, which come in by different brokers."""
    joins = [world.brokers[name].groups.call(ANYBODY, group, join()) for name in "ab"]
    joined = list(await asyncio.gather(*joins))
    texts = await asyncio.gather(*(assigned(world.brokers["b"].groups, group, each) for each in joined))
    assert texts == [f"1/{each.member_id}".encode() for each in joined]
    return joined


async def test_members_of_any_broker_share_a_generation_and_keep_it_when_the_coordinator_dies() -> None:
    bucket = MemoryObjectStore()
    async with running_world(
        {"a": bucket, "b": bucket}, 2, replace(CLUSTER, group_initial_rebalance_delay_ms=200)
    ) as world:
        group = led_by(world, "a")
        joined = await stable(world, group)
        await world.kill("a")
        await world.give(world.brokers["b"].local_groups.shard_of(group), "b")
        survivor = world.brokers["b"].groups
        for each in joined:
            assert await survivor.call(ANYBODY, group, beat(each)) == calls.Done()
            assert await assigned(survivor, group, each) == f"1/{each.member_id}".encode()
        with pytest.raises(MemberFenced):
            await survivor.call(ANYBODY, group, beat(joined[0], generation=2))
        await survivor.call(ANYBODY, group, leave(joined[0]))
        with pytest.raises(RebalanceInProgress):
            await survivor.call(ANYBODY, group, beat(joined[1]))


async def test_a_join_that_waits_continues_at_the_next_coordinator() -> None:
    bucket = MemoryObjectStore()
    async with running_world(
        {"a": bucket, "b": bucket}, 2, replace(CLUSTER, group_initial_rebalance_delay_ms=0)
    ) as world:
        group = led_by(world, "a")
        here = world.brokers["b"]
        first: JoinedGroup = await here.groups.call(ANYBODY, group, join())
        await assigned(here.groups, group, first)
        waiting = asyncio.create_task(here.groups.call(ANYBODY, group, join()))
        shard = here.local_groups.shard_of(group)
        await until(lambda: world.brokers["a"].local_groups.coordinator_of(shard).waiting > 0)
        await world.give(shard, "b")
        async with asyncio.timeout(60):
            while True:
                try:
                    await here.groups.call(ANYBODY, group, beat(first))
                except RebalanceInProgress:
                    break
                await asyncio.sleep(0.01)
            again = await here.groups.call(ANYBODY, group, join(first.member_id))
            second: JoinedGroup = await waiting
        assert again.generation == second.generation == 2
        assert {again.leader, second.leader} == {again.leader}
