"""Thousands of members or instances of one group: the event loop stays free, and another group's commits go on."""

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
from tests.attempts import attempts, within
from tests.broker.brokers import until
from tests.broker.groups.brokers_of_groups import broker_of_groups
from tests.broker.groups.consumers import GroupMember, settled
from tests.coordinator.groups.classic_group import join, sync
from tests.loop_stalls import watched_loop

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import AlreadyExists, Conflict, Overloaded
from tidelog.wire.classic_groups import JoinedGroup
from tidelog.wire.groups import DescribeGroup, ReadInstance, WriteInstance

STALL_S_MAX = 0.25
"""The longest turn of the event loop that is fair to others."""
COMMIT_S_MAX = 2.0
"""The slowest commit of another group meanwhile, in processor time: other processes of the suite share the machine."""
STORM_S = 60.0 * float(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))


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
    try:
        async with watched_loop(STALL_S_MAX):
            yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert bystander.commits > 3
    within(COMMIT_S_MAX, bystander.slowest_s, "the slowest commit of another group")


async def test_a_group_of_a_thousand_members_settles_while_others_are_served() -> None:
    for attempt in attempts():
        with attempt:
            await a_thousand_members()


async def a_thousand_members() -> None:
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
    for attempt in attempts():
        with attempt:
            await a_thousand_classic_members()


async def a_thousand_classic_members() -> None:
    async with broker_of_groups(group_initial_rebalance_delay_ms=200) as broker:

        async def member() -> bytes:
            joined: JoinedGroup = await broker.groups.call(ANYBODY, "big", join(session_timeout_ms=60_000))
            return (await broker.groups.call(ANYBODY, "big", sync(joined))).assignment

        async with fair_to_others(broker):
            assigned = await asyncio.gather(*(member() for _ in range(1_000)))
        assert len(set(assigned)) == 1_000


async def test_a_storm_of_members_costs_few_assignments_and_leaves_nobody_behind() -> None:
    for attempt in attempts():
        with attempt:
            await storm(2.0)


@pytest.mark.soak
async def test_a_storm_of_members_for_a_minute() -> None:
    for attempt in attempts(2):
        with attempt:
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


async def test_ten_thousand_instances_are_kept_and_one_more_is_refused() -> None:
    for attempt in attempts():
        with attempt:
            await ten_thousand_instances()


async def ten_thousand_instances() -> None:
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
