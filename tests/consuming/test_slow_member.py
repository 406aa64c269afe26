"""A member that polls too rarely: others get its partitions, and nothing that it says afterwards counts."""

import asyncio

import msgspec
import pytest
from tests.anybody import ANYBODY
from tests.attempts import attempts
from tests.broker.brokers import running_broker
from tests.consuming.polling_member import PollingMember, committed, member, produce
from tests.loop_stalls import watched_loop

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import MemberFenced, UnknownMember
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.groups import Heartbeat

SESSION_MS = 1_000
RECORDS = 20_000
STALL_S_MAX = 0.25


async def reads_everything(one: PollingMember, values: int) -> None:
    async with asyncio.timeout(20):
        while len(one.read) < values:
            await one.poll(200)


def slow_member(broker: LocalBroker) -> PollingMember:
    return PollingMember(broker, Heartbeat(topics=("t",), session_timeout_ms=SESSION_MS))


async def test_a_member_that_is_too_slow_loses_its_partitions_and_its_late_commit_is_refused() -> None:
    async with running_broker(MemoryObjectStore(), flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await produce(broker, 0, b"one", b"two", b"three")
        slow, other = slow_member(broker), member(broker)
        await slow.poll(5_000, records_max=1)
        await slow.poll(records_max=1)
        assert [value for _, value in slow.read] == [b"one", b"two"]
        await asyncio.sleep(SESSION_MS / 1_000)
        await reads_everything(other, 2)
        assert [value for _, value in other.read] == [b"two", b"three"], "from the last commit of the slow one on"
        await other.poll()
        with pytest.raises((UnknownMember, MemberFenced), match="join again"):
            await slow.poll()
        assert await committed(broker) == {("t", 0): 3}
        slow.heartbeat = msgspec.structs.replace(slow.heartbeat, member_id="", member_epoch=0)
        slow.positions = []
        await slow.poll(100)
        assert await committed(broker) == {("t", 0): 3}


async def test_a_slow_member_gets_no_more_than_it_asks_for_while_others_read_on() -> None:
    for attempt in attempts():
        with attempt:
            await _others_read_on_beside_a_slow_member()


async def _others_read_on_beside_a_slow_member() -> None:
    async with running_broker(MemoryObjectStore(), flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for _ in range(RECORDS // 2_000):
            await produce(broker, 0, *(b"x" * 100 for _ in range(2_000)))
        slow, other = member(broker), member(broker)
        async with watched_loop(STALL_S_MAX):
            while len(other.read) < RECORDS:
                before = len(slow.read)
                await slow.poll(1_000, records_max=1)
                assert len(slow.read) - before <= 1
                other.adopt(await other.polls.poll(ANYBODY, "another group", other.asked(1_000, records_max=2_000)))
        assert (await committed(broker))["t", 0] == len(slow.read) - 1
