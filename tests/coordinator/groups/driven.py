"""A coordinator with a plain machine and a store in memory, whose surroundings a test changes. Virtual time."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.coordinator.groups.memory_group_store import MemoryGroupStore, StoredGroups
from tests.coordinator.groups.plain_machine import PlainMachine
from tests.coordinator.virtual_time import LoopClock

from tidelog.coordinator.groups.coordinator_seams import CoordinatorBounds, CoordinatorSeams
from tidelog.coordinator.groups.group_coordinator import GroupCoordinator
from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_step import TopicInfo, Topics
from tidelog.coordinator.groups.group_writes import WriteBounds
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.wire import groups as calls


class Driven:
    def __init__(self, stored: StoredGroups | None = None, **bounds: Any) -> None:
        self.stored = stored or StoredGroups()
        self.machines: dict[str, PlainMachine] = {}
        self.topics: Topics = {"t": TopicInfo("id", 1)}
        self.reachable = True
        self.proof_error: Exception | None = None
        self.proofs = 0
        self.assigned: list[str] = []
        self.assigning = asyncio.Event()
        self.assigning.set()
        self.counts = GroupCounts()
        clock = bounds.pop("clock", None) or LoopClock()
        writes = WriteBounds(wait_s=bounds.pop("wait_s", 10.0), bytes_max=bounds.pop("bytes_max", 1 << 20))
        self.prove = self._prove
        seams = CoordinatorSeams(
            store=bounds.pop("store", None) or MemoryGroupStore(self.stored),
            new_machine=self._machine,
            assign=self._assign,
            topics=lambda: self.topics,
            prove=lambda: self.prove(),
            reachable=lambda: self.reachable,
            runtime=Runtime(clock, SeededEntropy(1)),
            counts=self.counts,
        )
        self.coordinator = GroupCoordinator(0, seams, replace(CoordinatorBounds(), writes=writes, **bounds))

    async def commit(self, group: str, offset: int, partition: int = 0) -> None:
        offsets = (calls.PartitionOffset(topic="t", partition=partition, offset=offset),)
        await self.coordinator.call(group, calls.CommitOffsets(offsets=offsets))

    async def committed(self, group: str) -> list[int]:
        answer = await self.coordinator.call(group, calls.FetchOffsets())
        return [offset.offset for offset in answer.offsets]

    async def offsets(self, group: str) -> dict[int, int]:
        answer = await self.coordinator.call(group, calls.FetchOffsets())
        return {offset.partition: offset.offset for offset in answer.offsets}

    async def join(self, group: str, member: str) -> None:
        await self.coordinator.call(group, calls.Heartbeat(member_id=member))

    async def beat(self, group: str, member: str) -> calls.HeartbeatAnswer:
        return await self.coordinator.call(group, calls.Heartbeat(member_id=member, member_epoch=1))

    def _machine(self, name: str, items: Any, moment: Any) -> PlainMachine:
        self.machines[name] = PlainMachine(name, items, moment)
        return self.machines[name]

    async def _assign(self, task: str) -> str:
        self.assigned.append(task)
        await self.assigning.wait()
        return f"target of {task}"

    async def _prove(self) -> None:
        self.proofs += 1
        if self.proof_error:
            raise self.proof_error


async def turns(count: int = 20) -> None:
    """Let all tasks run as far as they can."""
    for _ in range(count):
        await asyncio.sleep(0)
