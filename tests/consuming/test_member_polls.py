"""Polls of members: they join, read, commit, share partitions, and end when they lose one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.consuming.polling_member import GROUP, PollingMember, assigned, committed, member, produce, values

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.consuming.member_poll import LATEST, NONE
from tidelog.storage.errors import Invalid, MemberFenced, NotFound, StaleMemberEpoch, UnknownMember
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.groups import LEAVE_EPOCH, CommitOffsets, Heartbeat, PartitionOffset

JOIN_MS = 5_000


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with running_broker(MemoryObjectStore(), flush_interval_ms=0, archiver_interval_ms=10**9) as started:
        await started.create_topic(ANYBODY, "t", 4, {})
        yield started


async def settled(*members: PollingMember, has: Callable[[PollingMember], int]) -> None:
    """Poll by turns until each member has so many partitions."""
    async with asyncio.timeout(10):
        while any(len(each.has) != has(each) for each in members):
            for each in members:
                await each.poll(100)


async def test_the_first_poll_joins_and_reads(broker: LocalBroker) -> None:
    await produce(broker, 2, b"before")
    one = member(broker)
    polled = await one.poll(JOIN_MS)
    assert assigned(polled) == {("t", number) for number in range(4)}
    assert values(polled) == [(("t", 2), b"before")]
    assert polled.membership.member_id
    assert polled.membership.session_timeout_ms == 5_000
    assert await committed(broker) == {}, "nothing is done yet"


async def test_a_poll_commits_what_the_poll_before_read(broker: LocalBroker) -> None:
    await produce(broker, 0, b"one", b"two")
    one = member(broker)
    await one.poll(JOIN_MS, records_max=1)
    assert [value for _, value in one.read] == [b"one"]
    await one.poll(records_max=1)
    assert (await committed(broker))["t", 0] == 1
    await one.poll(commit=False)
    assert (await committed(broker))["t", 0] == 1
    assert [value for _, value in one.read] == [b"one", b"two"]


async def test_another_member_continues_at_the_committed_offsets(broker: LocalBroker) -> None:
    await produce(broker, 0, b"one", b"two")
    one = member(broker)
    await one.poll(JOIN_MS, records_max=1)
    await one.poll(records_max=1)
    leaving = msgspec.structs.replace(one.heartbeat, member_epoch=LEAVE_EPOCH)
    await broker.groups.call(ANYBODY, GROUP, leaving)
    two = member(broker)
    await two.poll(JOIN_MS)
    assert [value for _, value in two.read] == [b"two"], "at least once: one was committed, two was not"


async def test_members_share_the_partitions_and_nobody_skips_a_record(broker: LocalBroker) -> None:
    one, two = member(broker), member(broker)
    await settled(one, has=lambda _: 4)
    for number in range(4):
        await produce(broker, number, b"a")
    await settled(one, two, has=lambda _: 2)
    assert one.has.isdisjoint(two.has)
    for number in range(4):
        await produce(broker, number, b"b")
    async with asyncio.timeout(10):
        while sum(value == b"b" for _, value in one.read + two.read) < 4:
            await one.poll(20)
            await two.poll(20)
    assert sorted(one.read + two.read) == [(("t", number), value) for number in range(4) for value in (b"a", b"b")]


async def test_a_waiting_poll_ends_when_its_assignment_changes(broker: LocalBroker) -> None:
    one, two = member(broker), member(broker)
    await settled(one, has=lambda _: 4)
    epoch = one.heartbeat.member_epoch
    waiting = asyncio.ensure_future(one.poll(20_000))
    joining = asyncio.ensure_future(two.poll(20_000))
    async with asyncio.timeout(5):
        polled = await waiting
    assert len(assigned(polled)) == 2
    assert [len(each.partitions) for each in polled.revoked] == [2]
    assert polled.membership.member_epoch > epoch
    assert not two.has, "the partitions are free once the first member has confirmed"
    waiting = asyncio.ensure_future(one.poll(20_000))
    await asyncio.sleep(0)
    await produce(broker, 0, b"x")
    await produce(broker, 3, b"y")
    async with asyncio.timeout(5):
        await joining
    async with asyncio.timeout(5):
        await waiting
    assert len(two.has) == 2


async def test_a_poll_whose_answer_was_lost_may_be_repeated(broker: LocalBroker) -> None:
    await produce(broker, 0, b"one")
    one, two = member(broker), member(broker)
    await one.poll(JOIN_MS)
    joining = asyncio.ensure_future(two.polls.poll(ANYBODY, GROUP, two.asked(20_000)))
    async with asyncio.timeout(5):
        while (lost := await one.polls.poll(ANYBODY, GROUP, one.asked(300))).membership.member_epoch == (
            one.heartbeat.member_epoch
        ):
            pass
    again = await one.poll(300)
    assert again.membership == lost.membership
    assert (await committed(broker))["t", 0] == 1
    for number in range(4):
        await produce(broker, number, b"more")
    async with asyncio.timeout(5):
        while not joining.done():
            await one.poll(20)
    two.adopt(await joining)
    assert one.has.isdisjoint(two.has)


async def test_a_member_that_was_fenced_or_is_unknown_is_told_so(broker: LocalBroker) -> None:
    one = member(broker)
    await settled(one, has=lambda _: 4)
    one.heartbeat = msgspec.structs.replace(one.heartbeat, member_epoch=one.heartbeat.member_epoch + 5)
    with pytest.raises((MemberFenced, StaleMemberEpoch)):
        await one.poll()
    two = member(broker)
    two.heartbeat = msgspec.structs.replace(two.heartbeat, member_id="nobody", member_epoch=3)
    with pytest.raises(UnknownMember):
        await two.poll()
    two.positions = [PartitionOffset(topic="t", partition=0, offset=1)]
    with pytest.raises(UnknownMember):
        await two.poll()


async def test_a_member_that_leaves_while_its_poll_waits_ends_it(broker: LocalBroker) -> None:
    one = member(broker)
    await settled(one, has=lambda _: 4)
    waiting = asyncio.ensure_future(one.poll(20_000))
    await asyncio.sleep(0.01)
    await broker.groups.call(ANYBODY, GROUP, msgspec.structs.replace(one.heartbeat, member_epoch=LEAVE_EPOCH))
    with pytest.raises(UnknownMember):
        async with asyncio.timeout(5):
            await waiting


async def test_partitions_are_read_in_turn(broker: LocalBroker) -> None:
    for number in range(4):
        await produce(broker, number, *[b"x"] * 30)
    one = member(broker)
    await one.poll(JOIN_MS, records_max=10)
    for _ in range(3):
        await one.poll(records_max=10)
    read = [number for (_, number), _ in one.read]
    assert {number: read.count(number) for number in range(4)} == dict.fromkeys(range(4), 10)


async def test_latest_and_none(broker: LocalBroker) -> None:
    await produce(broker, 0, b"before")
    one = member(broker, from_position=LATEST)
    await one.poll(300)
    await produce(broker, 0, b"after")
    await one.poll(2_000)
    assert [value for _, value in one.read] == [b"after"]
    await broker.create_topic(ANYBODY, "u", 1, {})
    other = member(broker, "u", from_position=NONE)
    await broker.groups.call(ANYBODY, GROUP, msgspec.structs.replace(one.heartbeat, member_epoch=LEAVE_EPOCH))
    with pytest.raises(NotFound, match="no committed offset"):
        await other.poll(JOIN_MS)
    wrong = member(broker, from_position="soon")
    with pytest.raises(Invalid):
        await wrong.poll()


async def test_an_offset_out_of_range_begins_anew(broker: LocalBroker) -> None:
    for number in range(2):
        await produce(broker, number, b"a", b"b", b"c")
    ahead = tuple(PartitionOffset(topic="t", partition=number, offset=99) for number in range(2))
    await broker.groups.call(ANYBODY, GROUP, CommitOffsets(offsets=ahead))
    one = member(broker)
    await one.poll(JOIN_MS)
    assert sorted(one.read) == [(("t", number), value) for number in range(2) for value in (b"a", b"b", b"c")]


async def test_paused_partitions_are_kept_and_not_read(broker: LocalBroker) -> None:
    one = member(broker)
    await settled(one, has=lambda _: 4)
    one.paused = frozenset({("t", 1)})
    await produce(broker, 1, b"paused")
    await produce(broker, 2, b"read")
    await one.poll(2_000)
    assert [place for place, _ in one.read] == [("t", 2)]
    assert ("t", 1) in one.has
    one.paused = frozenset()
    await one.poll(2_000)
    assert [place for place, _ in one.read] == [("t", 2), ("t", 1)]


async def test_a_deleted_topic_does_not_stop_the_others(broker: LocalBroker) -> None:
    await broker.create_topic(ANYBODY, "u", 2, {})
    one = member(broker, "t", "u")
    await settled(one, has=lambda _: 6)
    assert len(one.has) == 6
    await broker.delete_topic(ANYBODY, "u")
    await produce(broker, 0, b"still here")
    async with asyncio.timeout(10):
        while len(one.has) != 4 or not one.read:
            await one.poll(200)
    assert [value for _, value in one.read] == [b"still here"]


async def test_new_partitions_are_read_from_their_beginning(broker: LocalBroker) -> None:
    one = member(broker)
    await settled(one, has=lambda _: 4)
    await broker.alter_topic(ANYBODY, "t", 5, {})
    await produce(broker, 4, b"new")
    async with asyncio.timeout(10):
        while not one.read:
            await one.poll(500)
    assert one.read == [(("t", 4), b"new")]


async def test_a_heartbeat_without_an_answer_holds_up_no_records(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = member(broker)
    await settled(one, has=lambda _: 4)
    await one.poll()
    groups, begun, stuck = broker.groups, asyncio.Event(), asyncio.Event()
    called = groups.call
    beats = 0

    async def call(context: RequestContext, group: str, request: Any) -> Any:
        nonlocal beats
        beats += isinstance(request, Heartbeat)
        if beats > 1:
            begun.set()
            await stuck.wait()
        return await called(context, group, request)

    monkeypatch.setattr(groups, "call", call)
    waiting = asyncio.ensure_future(one.poll(20_000))
    async with asyncio.timeout(10):
        await begun.wait()
        await produce(broker, 1, b"now")
        polled = await waiting
    assert values(polled) == [(("t", 1), b"now")]
