"""Thousands of groups on one broker, in real time: every group settles, commits, and hands partitions over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.groups.consumers import GroupMember

from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.groups import FetchOffsets

PARTITIONS = 2
SETTLED_S_MAX = 120.0


def shared(groups: Sequence[Sequence[GroupMember]], each: int) -> bool:
    """Whether each member of each group has so many partitions."""
    return all([len(member.partitions) for member in group] == [each] * len(group) for group in groups)


@pytest.mark.parametrize("count", [400, pytest.param(4_000, marks=[pytest.mark.soak, pytest.mark.timeout(0)])])
async def test_no_group_among_many_is_left_behind(count: int) -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "web", PARTITIONS, {})
        pairs = [[GroupMember(broker.groups, f"g{number}") for _ in range(2)] for number in range(count)]
        living = [asyncio.create_task(member.live()) for pair in pairs for member in pair]
        await until(lambda: shared(pairs, 1), seconds_max=SETTLED_S_MAX)
        await asyncio.gather(*(member.commit(7) for pair in pairs for member in pair))
        for task in living[1::2]:
            task.cancel()
        await asyncio.gather(*(leaving.leave() for _, leaving in pairs))
        await until(lambda: shared([pair[:1] for pair in pairs], PARTITIONS), seconds_max=SETTLED_S_MAX)
        assert not [task for task in living[::2] if task.done()], "a member was refused"
        for staying, _ in pairs:
            found = (await broker.groups.call(ANYBODY, staying.group, FetchOffsets())).offsets
            assert [each.offset for each in found] == [7] * PARTITIONS
        assert broker.local_groups.figures().waiting == 0
        for task in living:
            task.cancel()
