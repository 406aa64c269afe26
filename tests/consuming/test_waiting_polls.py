"""5,000 polls that wait in one broker: they cost little, end when there is something to read, and others are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.anybody import ANYBODY
from tests.attempts import attempts, quicker_than, within
from tests.broker.brokers import running_broker, until
from tests.consuming.polling_member import PollingMember, produce
from tests.loop_stalls import watched_loop

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.consuming.member_polls import MemberPolls
from tidelog.storage.runtime import SystemClock
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.groups import DescribeGroup, Heartbeat

GROUPS, MEMBERS = 100, 50
STALL_S_MAX = 0.25
"""A turn takes 6 ms today."""
IDLE_CPU_MAX = 0.5
"""Of one core, for all waiting polls with their heartbeats."""
IDLE_S = 2.0
PRODUCE_S_MAX = 1.0
READ_S_MAX = 10.0
SETTLED_S_MAX = 120.0


@dataclass
class _Polls:
    """Members that poll all the time; a waiting poll takes up to a minute. `read`: the groups that got records."""

    broker: LocalBroker
    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = MemberPolls(self.broker, SystemClock())

    async def live(self, group: str) -> None:
        member = PollingMember(self.broker, Heartbeat(topics=("t",), session_timeout_ms=120_000))
        while True:
            member.adopt(await self.shared.poll(ANYBODY, group, member.asked(60_000)))
            self.read += [group] * len(member.read)
            member.read.clear()


@asynccontextmanager
async def waiting_polls() -> AsyncIterator[_Polls]:
    async with running_broker(MemoryObjectStore(), flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", MEMBERS, {})
        await broker.create_topic(ANYBODY, "other", 1, {})
        polls = _Polls(broker)
        names = [f"group-{number}" for number in range(GROUPS)]
        tasks = [asyncio.create_task(polls.live(name)) for name in names for _ in range(MEMBERS)]
        try:
            await until(lambda: broker.measurements().waiting_fetches == GROUPS * MEMBERS, seconds_max=SETTLED_S_MAX)
            for name in names:
                await _stable(broker, name)
            yield polls
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert broker.measurements().waiting_fetches == 0


async def _stable(broker: LocalBroker, group: str) -> None:
    """Each member of `group` has one partition."""
    async with asyncio.timeout(SETTLED_S_MAX):
        while True:
            described = await broker.groups.call(ANYBODY, group, DescribeGroup())
            if described.state == "Stable" and len(described.members) == MEMBERS:
                return
            await asyncio.sleep(0.05)


async def test_five_thousand_waiting_polls() -> None:
    async with waiting_polls() as polls:
        for attempt in attempts():
            cpu_s = time.thread_time()
            await asyncio.sleep(IDLE_S)
            with attempt:
                within(IDLE_CPU_MAX * IDLE_S, time.thread_time() - cpu_s, f"CPU time of polls that wait {IDLE_S:g} s")
        for attempt in attempts():
            with attempt:
                await _others_are_served_beside(polls)


async def _others_are_served_beside(polls: _Polls) -> None:
    """Others produce, and then one member of each group reads a record."""
    broker = polls.broker
    await until(lambda: broker.measurements().waiting_fetches == GROUPS * MEMBERS, seconds_max=SETTLED_S_MAX)
    polls.read.clear()
    async with watched_loop(STALL_S_MAX):
        slowest_s = 0.0
        for number in range(50):
            began = time.perf_counter()
            await produce(broker, 0, b"%d" % number, topic="other")
            slowest_s = max(slowest_s, time.perf_counter() - began)
        assert not polls.read
        await produce(broker, 7, b"for one member of each group")
        with quicker_than(READ_S_MAX, "a read by one member of each group"):
            await until(lambda: len(polls.read) == GROUPS)
    assert sorted(polls.read) == sorted({*polls.read})
    within(PRODUCE_S_MAX, slowest_s, "the slowest of 50 produces")
