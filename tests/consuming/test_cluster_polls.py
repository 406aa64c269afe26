"""Polls in a cluster: any broker takes the next poll of any member, also while brokers stop and shards move."""

from __future__ import annotations

import asyncio
import itertools

from tests.anybody import ANYBODY
from tests.broker.cluster_members import Members, running_members
from tests.consuming.polling_member import PollingMember, committed, member, produce, values

from tidelog.services.consuming.member_polls import MemberPolls
from tidelog.storage.errors import MemberFenced, Unavailable, UnknownMember
from tidelog.storage.runtime import SystemClock
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.groups import Heartbeat

PARTITIONS, VALUES = 6, 120


class Roamer:
    """A member that sends each poll to another broker, and repeats a poll that failed."""

    def __init__(self, members: Members, number: int) -> None:
        self._members = members
        self._turn = number
        self.member = member(next(iter(members.brokers.values())))
        self.failures = 0

    async def live(self) -> None:
        while True:
            names = sorted(self._members.brokers)
            self._turn += 1
            name = names[self._turn % len(names)]
            with self._members.peers.visiting(name):
                await self._poll(name)

    async def _poll(self, name: str) -> None:
        here = self.member
        polls = MemberPolls(self._members.brokers[name], SystemClock())
        try:
            here.adopt(await polls.poll(ANYBODY, "g", here.asked(200, records_max=7)))
        except (UnknownMember, MemberFenced):
            here.heartbeat, here.positions = Heartbeat(topics=("t",), session_timeout_ms=5_000), []
        except Unavailable:
            self.failures += 1
            await asyncio.sleep(0.01)


async def _all_read_and_committed(members: Members, roamers: list[Roamer], tasks: list[asyncio.Task[None]]) -> None:
    expected = {(("t", number % PARTITIONS), b"%d" % number) for number in range(VALUES)}
    async with asyncio.timeout(20):
        while {read for each in roamers for read in each.member.read} != expected or (
            sum((await committed(members.brokers["a"])).values()) != VALUES
        ):
            for task in tasks:
                assert not task.done(), task
            await asyncio.wait(tasks, timeout=0.02)


async def test_polls_roam_over_brokers_and_nothing_is_skipped_while_one_stops() -> None:
    bucket = MemoryObjectStore()
    async with running_members(("a", bucket), ("b", bucket), ("c", bucket)) as members:
        await members.brokers["a"].create_topic(ANYBODY, "t", PARTITIONS, {})
        roamers = [Roamer(members, number) for number in range(3)]
        tasks = [asyncio.create_task(each.live()) for each in roamers]
        try:
            for number in range(VALUES):
                if number == VALUES // 2:
                    await members.stop("c")
                await produce(members.brokers["b"], number % PARTITIONS, b"%d" % number)
            await _all_read_and_committed(members, roamers, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        held = [place for each in roamers for place in each.member.has]
        assert sorted(held) == [("t", number) for number in range(PARTITIONS)], "each partition has one owner"


async def test_a_poll_reads_all_partitions_with_one_call_to_each_leader() -> None:
    bucket = MemoryObjectStore()
    async with running_members(("a", bucket), ("b", bucket), ("c", bucket)) as members:
        a = members.brokers["a"]
        await a.create_topic(ANYBODY, "t", 40, {})
        for number in range(40):
            await produce(a, number, b"%d" % number)
        one: PollingMember = member(a)
        while len(one.has) < 40:
            await one.poll(100, records_max=1)
        before = a.measurements().cluster.forwarded
        polled = await one.poll(0, commit=False)
        assert len(values(polled)) >= 30
        assert a.measurements().cluster.forwarded - before <= 3, "the heartbeat, and a fetch at each other leader"


async def test_a_waiting_poll_gets_records_of_any_leader() -> None:
    bucket = MemoryObjectStore()
    async with running_members(("a", bucket), ("b", bucket), ("c", bucket)) as members:
        await members.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        one = member(members.brokers["b"])
        while len(one.has) < 3:
            await one.poll(100)
        for number, broker in zip(range(3), itertools.cycle(members.brokers.values()), strict=False):
            waiting = asyncio.ensure_future(one.poll(20_000))
            await asyncio.sleep(0.02)
            await produce(broker, number, b"%d" % number)
            async with asyncio.timeout(5):
                await waiting
        assert sorted(one.read) == [(("t", number), b"%d" % number) for number in range(3)]
