"""Groups of a cluster: any broker takes any call, and the coordinator moves with its shard."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import until
from tests.broker.cluster_members import running_members
from tests.broker.cluster_world import running_world

from tidelog.services.broker.api.groups import Groups
from tidelog.storage.errors import LeaderUnknown, NotLeader
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire import groups as calls
from tidelog.wire.classic_groups import ClassicProtocol, JoinGroup

NAMES = tuple(f"group-{number}" for number in range(12))


def commit(offset: int) -> calls.CommitOffsets:
    return calls.CommitOffsets(offsets=(calls.PartitionOffset(topic="web", partition=0, offset=offset),))


async def committed(groups: Groups, name: str) -> list[int]:
    return [found.offset for found in (await groups.call(ANYBODY, name, calls.FetchOffsets())).offsets]


async def settled(groups: Groups, name: str) -> calls.HeartbeatAnswer:
    """A member of `name` that has the partition of ``web``."""
    answer = await groups.call(ANYBODY, name, calls.Heartbeat(topics=("web",)))
    while not answer.assignment:
        await asyncio.sleep(0.01)
        beat = calls.Heartbeat(member_id=answer.member_id, member_epoch=answer.member_epoch)
        answer = await groups.call(ANYBODY, name, beat)
    return answer


async def test_any_broker_takes_any_call() -> None:
    bucket = MemoryObjectStore()
    async with running_members(("a", bucket), ("b", bucket), ("c", bucket)) as members:
        brokers = tuple(members.brokers.values())
        await brokers[0].create_topic(ANYBODY, "web", 1, {})
        for number, name in enumerate(NAMES):
            await brokers[number % 3].groups.call(ANYBODY, name, commit(number))
        for broker in brokers:
            assert [await committed(broker.groups, name) for name in NAMES] == [[n] for n in range(len(NAMES))]
            listed = await broker.groups.groups(ANYBODY)
            assert sorted(NAMES) == [group.group for group in listed.groups]
        assert len({broker.local_groups.shard_of(name) for broker in brokers for name in NAMES}) > 2


async def test_members_stay_and_offsets_are_kept_when_a_coordinator_stops() -> None:
    bucket = MemoryObjectStore()
    async with running_members(("a", bucket), ("b", bucket)) as members:
        await members.brokers["a"].create_topic(ANYBODY, "web", 1, {})
        joined = {name: await settled(members.brokers["a"].groups, name) for name in NAMES}
        await members.stop("b")
        for name, answer in joined.items():
            beat = calls.Heartbeat(member_id=answer.member_id, member_epoch=answer.member_epoch)
            again = await members.brokers["a"].groups.call(ANYBODY, name, beat)
            assert (again.member_epoch, again.assignment) == (answer.member_epoch, answer.assignment)


async def test_a_broker_that_may_not_forward_names_the_coordinator() -> None:
    bucket = MemoryObjectStore()
    async with running_world({"a": bucket, "b": bucket}, shards=2) as world:
        here, there = world.brokers["a"], world.brokers["b"]
        name = next(name for name in NAMES if not here.groups.coordinator(ANYBODY, name).local)
        with pytest.raises(NotLeader) as refused:
            await here.groups.call(ANYBODY.not_forwarded(), name, commit(1))
        assert refused.value.leader == "http://b"
        assert there.groups.coordinator(ANYBODY, name).local


async def test_a_replaced_coordinator_stores_nothing_and_answers_nothing_from_memory() -> None:
    bucket = MemoryObjectStore()
    async with running_world({"a": bucket, "b": bucket}, shards=2) as world:
        old, new = world.brokers["a"], world.brokers["b"]
        await old.create_topic(ANYBODY, "web", 1, {})
        name = next(name for name in NAMES if old.groups.coordinator(ANYBODY, name).local)
        await old.groups.call(ANYBODY, name, commit(1))
        world.coordinations["a"].cut_off()
        await world.usurp(old.local_groups.shard_of(name), "b")
        await new.groups.call(ANYBODY, name, commit(2))
        with pytest.raises((LeaderUnknown, NotLeader)):
            await old.groups.call(ANYBODY.not_forwarded(), name, calls.FetchOffsets())
        with pytest.raises((LeaderUnknown, NotLeader)):
            await old.groups.call(ANYBODY.not_forwarded(), name, commit(3))
        assert await committed(new.groups, name) == [2]


async def test_a_join_that_waits_moves_with_its_coordinator() -> None:
    bucket = MemoryObjectStore()
    async with running_world({"a": bucket, "b": bucket}, shards=2) as world:
        name = next(name for name in NAMES if world.brokers["a"].groups.coordinator(ANYBODY, name).local)
        shard = world.brokers["a"].local_groups.shard_of(name)
        join = JoinGroup(
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(ClassicProtocol("range", b""),),
        )
        waiting = asyncio.create_task(world.brokers["b"].groups.call(ANYBODY, name, join))
        await until(lambda: world.brokers["a"].local_groups.coordinator_of(shard).waiting > 0)
        await world.give(shard, "b")
        assert (await waiting).generation == 1
