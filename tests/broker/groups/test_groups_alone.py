"""Groups of a broker alone."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker

from tidelog.storage.errors import Invalid, NotFound, Overloaded
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire import groups as calls


def commit(offset: int, topic: str = "web") -> calls.CommitOffsets:
    return calls.CommitOffsets(offsets=(calls.PartitionOffset(topic=topic, partition=0, offset=offset),))


async def test_committed_offsets_survive_a_restart() -> None:
    store = MemoryObjectStore()
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "web", 1, {})
        await broker.groups.call(ANYBODY, "g", commit(7))
    async with running_broker(store) as broker:
        (found,) = (await broker.groups.call(ANYBODY, "g", calls.FetchOffsets())).offsets
        assert (found.topic, found.partition, found.offset) == ("web", 0, 7)


async def test_a_member_joins_and_is_assigned_all_partitions() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "web", 3, {})
        answer = await broker.groups.call(ANYBODY, "g", calls.Heartbeat(topics=("web",)))
        while not answer.assignment:
            beat = calls.Heartbeat(member_id=answer.member_id, member_epoch=answer.member_epoch)
            answer = await broker.groups.call(ANYBODY, "g", beat)
            await asyncio.sleep(0.001)
        assert answer.assignment == (calls.TopicPartitions("web", (0, 1, 2)),)
        described = await broker.groups.call(ANYBODY, "g", calls.DescribeGroup())
        assert [member.member_id for member in described.members] == [answer.member_id]


async def test_groups_are_listed_by_name_in_pages() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "web", 1, {})
        for name in ("b", "a", "c/d é"):
            await broker.groups.call(ANYBODY, name, commit(1))
        first = await broker.groups.groups(ANYBODY, limit=2)
        assert [group.group for group in first.groups] == ["a", "b"]
        rest = await broker.groups.groups(ANYBODY, after=first.next or "", limit=2)
        assert ([group.group for group in rest.groups], rest.next) == (["c/d é"], None)


@pytest.mark.parametrize("name", ["", "x" * 250, "a\nb", "\ud800"])
async def test_a_name_that_no_group_can_have_is_refused(name: str) -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        with pytest.raises(Invalid, match="name of a group"):
            await broker.groups.call(ANYBODY, name, commit(1))


async def test_a_group_that_nobody_has_used_is_not_found() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        with pytest.raises(NotFound):
            await broker.groups.call(ANYBODY, "g", calls.DescribeGroup())


async def test_a_call_on_a_broker_that_has_stopped_is_refused() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "web", 1, {})
        await broker.groups.call(ANYBODY, "g", commit(1))
    with pytest.raises(Overloaded, match="stopping"):
        await broker.groups.call(ANYBODY, "g", commit(2))
