"""Members of consumer groups at the `Groups` seam, as a client library would drive them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.anybody import ANYBODY

from tidelog.services.broker.api.groups import Groups
from tidelog.storage.errors import MemberFenced, UnknownMember
from tidelog.wire.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    CommitOffsets,
    Heartbeat,
    HeartbeatAnswer,
    PartitionOffset,
    TopicPartitions,
)


@dataclass
class GroupMember:
    """One member of `group`. `beat` sends one heartbeat and gives up at once whatever it must."""

    groups: Groups
    group: str
    topic: str = "web"
    instance_id: str | None = None
    member_id: str = ""
    epoch: int = JOIN_EPOCH
    owned: tuple[TopicPartitions, ...] = ()
    interval_s: float = 0.0
    session_timeout_ms: int = 45_000
    beats: int = 0
    partitions: frozenset[int] = field(default_factory=frozenset)

    async def beat(self) -> None:
        request = Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topics=(self.topic,) if self.epoch == JOIN_EPOCH else None,
            session_timeout_ms=self.session_timeout_ms if self.epoch == JOIN_EPOCH else None,
            owned=self.owned,
        )
        try:
            self._take(await self.groups.call(ANYBODY, self.group, request))
        except (MemberFenced, UnknownMember):
            self.epoch, self.owned, self.partitions = JOIN_EPOCH, (), frozenset()

    async def live(self) -> None:
        """Join, and send heartbeats as the coordinator says, until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(self.interval_s)

    async def commit(self, offset: int, partition: int | None = None) -> None:
        """Commit `offset` for `partition`, or for the first one that it owns."""
        chosen = min(self.partitions) if partition is None else partition
        await self.groups.call(
            ANYBODY,
            self.group,
            CommitOffsets(
                offsets=(PartitionOffset(topic=self.topic, partition=chosen, offset=offset),),
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance_id,
            ),
        )

    async def leave(self) -> None:
        leaving = Heartbeat(member_id=self.member_id, member_epoch=LEAVE_EPOCH, instance_id=self.instance_id)
        await self.groups.call(ANYBODY, self.group, leaving)

    def _take(self, answer: HeartbeatAnswer) -> None:
        self.beats += 1
        self.member_id, self.epoch = answer.member_id, answer.member_epoch
        self.interval_s = answer.heartbeat_interval_ms / 1_000
        self.owned = answer.assignment
        self.partitions = frozenset(number for part in answer.assignment for number in part.partitions)


async def settled(*members: GroupMember, partitions: int, seconds_max: float = 60.0) -> None:
    """Beat until each member owns some of `partitions`, and together they own each of them once."""
    async with asyncio.timeout(seconds_max):
        while not all(member.partitions for member in members) or (
            sorted(number for member in members for number in member.partitions) != list(range(partitions))
        ):
            await asyncio.gather(*(member.beat() for member in members))
            await asyncio.sleep(0.005)
