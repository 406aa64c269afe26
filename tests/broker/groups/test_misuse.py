"""Groups that are used badly: each misuse has a bound and a clear error, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.groups.consumers import GroupMember, settled
from tests.coordinator.groups.classic_group import join, sync
from tests.http.loop_stalls import watched_loop

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import (
    AlreadyExists,
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
from tidelog.storage.stores.memory import MemoryObjectStore
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

STALL_S_MAX = 0.25
"""The longest turn of the event loop that is fair to others."""
COMMIT_S_MAX = 2.0
"""The slowest commit of another group meanwhile, in processor time: other processes of the suite share the machine."""
STORM_S = 60.0 * float(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))


@asynccontextmanager
async def broker_of_groups(**settings: object) -> AsyncIterator[LocalBroker]:
    """A broker with the topics ``web`` (100 partitions) and ``other`` (1)."""
    async with running_broker(MemoryObjectStore(), **settings) as broker:
        await broker.create_topic(ANYBODY, "web", 100, {})
        await broker.create_topic(ANYBODY, "other", 1, {})
        yield broker


@dataclass
class Bystander:
    """Another group, which commits all the time. `slowest_s`: the processor time of this process during its slowest
    commit."""

    broker: LocalBroker
    slowest_s: float = 0.0
    commits: int = 0
    member: GroupMember = field(init=False)

    def __post_init__(self) -> None:
        self.member = GroupMember(self.broker.groups, "bystander", "other")

    async def run(self) -> None:
        await settled(self.member, partitions=1)
        while True:
            began = time.process_time()
            self.commits += 1
            if self.commits % 100 == 0:
                await self.member.beat()
            await self.member.commit(self.commits)
            self.slowest_s = max(self.slowest_s, time.process_time() - began)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def fair_to_others(broker: LocalBroker) -> AsyncIterator[None]:
    """The loop stays responsive during the block, and another group's commits go on."""
    bystander = Bystander(broker)
    running = asyncio.create_task(bystander.run())
    await until(lambda: bystander.commits > 0)
    bystander.slowest_s = 0.0
    async with watched_loop() as stalls:
        yield
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert stalls.longest_s < STALL_S_MAX
    assert bystander.commits > 3
    assert bystander.slowest_s < COMMIT_S_MAX


async def test_a_group_of_a_thousand_members_settles_while_others_are_served() -> None:
    async with broker_of_groups() as broker:
        await broker.create_topic(ANYBODY, "wide", 2_000, {})
        members = [GroupMember(broker.groups, "big", "wide") for _ in range(1_000)]
        async with fair_to_others(broker):
            tasks = [asyncio.create_task(member.live()) for member in members]
            await until(lambda: [len(member.partitions) for member in members] == [2] * 1_000)
            for task in tasks[500:]:
                task.cancel()
            await asyncio.gather(*(member.leave() for member in members[500:]))
            await until(lambda: [len(member.partitions) for member in members[:500]] == [4] * 500)
            for task in tasks:
                task.cancel()
        owned = sorted(number for member in members[:500] for number in member.partitions)
        assert owned == list(range(2_000))


async def test_a_classic_group_of_a_thousand_members_settles_while_others_are_served() -> None:
    async with broker_of_groups(group_initial_rebalance_delay_ms=200) as broker:

        async def member() -> bytes:
            joined: JoinedGroup = await broker.groups.call(ANYBODY, "big", join(session_timeout_ms=60_000))
            return (await broker.groups.call(ANYBODY, "big", sync(joined))).assignment

        async with fair_to_others(broker):
            assigned = await asyncio.gather(*(member() for _ in range(1_000)))
        assert len(set(assigned)) == 1_000


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


async def test_a_storm_of_members_costs_few_assignments_and_leaves_nobody_behind() -> None:
    await storm(2.0)


@pytest.mark.soak
async def test_a_storm_of_members_for_a_minute() -> None:
    await storm(STORM_S)


async def storm(seconds: float) -> None:
    async with broker_of_groups() as broker:
        until_s = time.monotonic() + seconds
        joins = 0

        async def restless(seed: int) -> None:
            """Joins, sends some heartbeats, and leaves or just stops."""
            nonlocal joins
            choices = random.Random(seed)
            while time.monotonic() < until_s:
                member = GroupMember(broker.groups, "storm", session_timeout_ms=1_000)
                joins += 1
                for _ in range(choices.randrange(4)):
                    await member.beat()
                    await asyncio.sleep(choices.random() * 0.02)
                if member.member_id and choices.random() < 0.7:
                    await member.leave()

        async with fair_to_others(broker):
            await asyncio.gather(*(restless(seed) for seed in range(100)))
        assert joins > 100
        assert broker.local_groups.counts.assignments < joins / 2, "joins in one assignment's time share the next one"
        last = GroupMember(broker.groups, "storm")
        await settled(last, partitions=100)
        described = await broker.groups.call(ANYBODY, "storm", DescribeGroup())
        assert [member.member_id for member in described.members] == [last.member_id]


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


async def test_ten_thousand_instances_are_kept_and_one_more_is_refused() -> None:
    async with broker_of_groups() as broker:
        names = [f"instance-{number}" for number in range(10_000)]

        def write(name: str, version: int = 0) -> WriteInstance:
            return WriteInstance(instance=name, data=b"x" * 200, version=version, idle_timeout_ms=300_000)

        async def in_turns(requests: Iterator[WriteInstance]) -> None:
            """By 200 clients."""

            async def client() -> None:
                for request in requests:
                    await broker.groups.call(ANYBODY, "rest", request)

            await asyncio.gather(*(client() for _ in range(200)))

        async with fair_to_others(broker):
            await in_turns(write(name) for name in names)
            with pytest.raises(Overloaded, match="10000 instances, as many as it may have") as refused:
                await broker.groups.call(ANYBODY, "rest", write("one more"))
            assert refused.value.retry_after_s > 0
            with pytest.raises(AlreadyExists):
                await broker.groups.call(ANYBODY, "rest", write(names[0]))
            with pytest.raises(Conflict):
                await broker.groups.call(ANYBODY, "rest", write(names[0], version=7))
            await in_turns(write(name, 1) for name in names)
        state = await broker.groups.call(ANYBODY, "rest", ReadInstance(instance=names[-1]))
        assert (state.data, state.version) == (b"x" * 200, 2)


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
