"""Groups that are used badly: each misuse has a bound and a clear error."""

from __future__ import annotations

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import until
from tests.broker.groups.brokers_of_groups import broker_of_groups
from tests.broker.groups.consumers import GroupMember, settled
from tests.coordinator.groups.classic_group import join, sync

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import (
    Conflict,
    GroupFull,
    GroupNotEmpty,
    InstanceInUse,
    MemberFenced,
    NotFound,
    Overloaded,
    StaleMemberEpoch,
    TidelogError,
    TooLarge,
    UnknownMember,
)
from tidelog.wire.classic_groups import ClassicHeartbeat, JoinedGroup
from tidelog.wire.groups import (
    CommitOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    PartitionOffset,
    ReadInstance,
    WriteInstance,
)


async def test_a_full_group_refuses_members_and_says_when_to_try_again() -> None:
    async with broker_of_groups(group_max_size=3) as broker:
        members = [GroupMember(broker.groups, "g") for _ in range(3)]
        await settled(*members, partitions=100)
        with pytest.raises(GroupFull, match="as many as it may have") as refused:
            await GroupMember(broker.groups, "g").beat()
        assert refused.value.retry_after_s > 0
        await members[0].leave()
        members[0] = GroupMember(broker.groups, "g")
        await settled(*members, partitions=100)


async def test_a_consumer_that_never_commits_costs_no_writes() -> None:
    async with broker_of_groups() as broker:
        member = GroupMember(broker.groups, "g")
        await settled(member, partitions=100)
        before = broker.local_groups.counts.changes
        for _ in range(1_000):
            await member.beat()
        assert broker.local_groups.counts.changes == before
        assert (await broker.groups.call(ANYBODY, "g", FetchOffsets())).offsets == ()


async def test_a_consumer_may_commit_backwards_and_the_last_commit_counts() -> None:
    async with broker_of_groups() as broker:
        member = GroupMember(broker.groups, "g")
        await settled(member, partitions=100)
        for offset in range(1_000, 0, -1):
            await member.commit(offset, 7)
        found = await broker.groups.call(ANYBODY, "g", FetchOffsets())
        assert [(each.partition, each.offset) for each in found.offsets] == [(7, 1)]


async def test_commits_that_nobody_may_make_are_refused_and_change_nothing() -> None:
    async with broker_of_groups() as broker:
        first, second = GroupMember(broker.groups, "g"), GroupMember(broker.groups, "g")
        await settled(first, second, partitions=100)
        theirs = min(second.partitions)
        refused: list[tuple[type[TidelogError], CommitOffsets]] = [
            (StaleMemberEpoch, commit(first, theirs)),
            (StaleMemberEpoch, commit(first, min(first.partitions), epoch=first.epoch - 1)),
            (UnknownMember, commit(first, min(first.partitions), member_id="nobody")),
            (GroupNotEmpty, CommitOffsets(offsets=(PartitionOffset(topic="web", partition=0, offset=1),))),
            (StaleMemberEpoch, commit(first, 100)),
            (NotFound, commit(first, 0, topic="nowhere")),
            (TooLarge, commit(first, min(first.partitions), metadata="x" * 5_000)),
        ]
        for error, request in refused:
            with pytest.raises(error):
                await broker.groups.call(ANYBODY, "g", request)
        assert (await broker.groups.call(ANYBODY, "g", FetchOffsets())).offsets == ()


def commit(
    member: GroupMember,
    partition: int,
    *,
    epoch: int | None = None,
    member_id: str | None = None,
    topic: str = "web",
    metadata: str = "",
) -> CommitOffsets:
    return CommitOffsets(
        offsets=(PartitionOffset(topic=topic, partition=partition, offset=1, metadata=metadata),),
        member_id=member.member_id if member_id is None else member_id,
        member_epoch=member.epoch if epoch is None else epoch,
    )


async def test_the_second_member_with_an_instance_id_is_refused_while_the_first_lives() -> None:
    async with broker_of_groups() as broker:
        first = GroupMember(broker.groups, "g", instance_id="one")
        await settled(first, partitions=100)
        second = GroupMember(broker.groups, "g", instance_id="one")
        for _ in range(100):
            with pytest.raises(InstanceInUse, match="give each consumer its own"):
                await second.beat()
        epoch = first.epoch
        await first.beat()
        assert (first.epoch, len(first.partitions)) == (epoch, 100)


async def test_of_two_classic_members_with_an_instance_id_the_first_is_fenced() -> None:
    async with broker_of_groups(group_initial_rebalance_delay_ms=0) as broker:
        first: JoinedGroup = await broker.groups.call(ANYBODY, "g", join(instance_id="one"))
        await broker.groups.call(ANYBODY, "g", sync(first))
        second: JoinedGroup = await broker.groups.call(ANYBODY, "g", join(instance_id="one"))
        assert second.generation == first.generation
        beat = ClassicHeartbeat(generation=1, member_id=first.member_id, instance_id="one")
        with pytest.raises(InstanceInUse, match="stop this one"):
            await broker.groups.call(ANYBODY, "g", beat)


async def test_instances_that_nobody_uses_are_dropped() -> None:
    async with broker_of_groups() as broker:
        write = WriteInstance(instance="i", data=b"", version=0, idle_timeout_ms=50)
        await broker.groups.call(ANYBODY, "rest", write)
        while await is_kept(broker, "i"):  # noqa: ASYNC110  # nobody is told
            await asyncio.sleep(0.01)
        with pytest.raises(UnknownMember, match="was deleted or not used"):
            await broker.groups.call(ANYBODY, "rest", ReadInstance(instance="i"))


async def is_kept(broker: LocalBroker, instance: str) -> bool:
    """Whether the instance exists. It is not a use: a write of a version that it does not have changes nothing."""
    try:
        await broker.groups.call(
            ANYBODY, "rest", WriteInstance(instance=instance, data=b"", version=7, idle_timeout_ms=50)
        )
    except Conflict:
        return True
    except UnknownMember:
        return False
    raise AssertionError(f"{instance} is at version 7")


async def test_requests_that_wait_are_bounded_and_end_with_their_clients() -> None:
    async with broker_of_groups(group_requests_max=50) as broker:
        waiting = [asyncio.create_task(broker.groups.call(ANYBODY, "g", join())) for _ in range(50)]
        shard = broker.local_groups.shard_of("g")
        await until(lambda: broker.local_groups.coordinator_of(shard).waiting == 50)
        with pytest.raises(Overloaded, match=r"group\.requests\.max"):
            await broker.groups.call(ANYBODY, "g", DescribeGroup())
        for task in waiting:
            task.cancel()
        await until(lambda: broker.local_groups.coordinator_of(shard).waiting == 0)
        with pytest.raises((MemberFenced, UnknownMember)):
            await broker.groups.call(ANYBODY, "g", ClassicHeartbeat(generation=1, member_id="m"))


async def test_a_member_that_claims_what_it_does_not_own_gets_nothing_by_it() -> None:
    async with broker_of_groups() as broker:
        first, second = GroupMember(broker.groups, "g"), GroupMember(broker.groups, "g")
        await settled(first, second, partitions=100)
        claim = Heartbeat(member_id=first.member_id, member_epoch=first.epoch, owned=first.owned + second.owned)
        answer = await broker.groups.call(ANYBODY, "g", claim)
        assert answer.assignment == first.owned
