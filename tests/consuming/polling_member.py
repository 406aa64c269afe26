"""A member of a group that polls a broker, as a client of the HTTP interface does."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from tests.anybody import ANYBODY
from tests.broker.drafts import draft, values_of

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.consuming.assigned_partitions import Place, places_of
from tidelog.services.consuming.member_poll import EARLIEST, MemberPoll, PolledRecords
from tidelog.services.consuming.member_polls import MemberPolls
from tidelog.storage.runtime import SystemClock
from tidelog.wire.groups import CommittedOffset, FetchOffsets, Heartbeat, PartitionOffset

GROUP = "g"
BYTES_MAX = 1 << 30


@dataclass
class PollingMember:
    """Keeps what a client keeps: the last answer."""

    broker: Broker
    heartbeat: Heartbeat
    from_position: str = EARLIEST
    positions: list[PartitionOffset] = field(default_factory=list)
    paused: frozenset[Place] = frozenset()
    read: list[tuple[Place, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.polls = MemberPolls(self.broker, SystemClock())

    def asked(self, wait_ms: int = 0, *, commit: bool = True, records_max: int = 1_000_000) -> MemberPoll:
        limits = FetchLimits(records_max, BYTES_MAX, wait_ms)
        return MemberPoll(self.heartbeat, limits, tuple(self.positions), commit, self.from_position, self.paused)

    async def poll(self, wait_ms: int = 0, *, commit: bool = True, records_max: int = 1_000_000) -> PolledRecords:
        """Poll, and keep the answer."""
        polled = await self.polls.poll(ANYBODY, GROUP, self.asked(wait_ms, commit=commit, records_max=records_max))
        self.adopt(polled)
        return polled

    def adopt(self, polled: PolledRecords) -> None:
        answer = polled.membership
        self.heartbeat = msgspec.structs.replace(
            self.heartbeat, member_id=answer.member_id, member_epoch=answer.member_epoch
        )
        self.positions = list(polled.positions)
        self.read += values(polled)

    @property
    def has(self) -> set[Place]:
        return {(each.topic, each.partition) for each in self.positions}


def member(broker: Broker, *topics: str, from_position: str = EARLIEST) -> PollingMember:
    return PollingMember(broker, Heartbeat(topics=topics or ("t",), session_timeout_ms=5_000), from_position)


def values(polled: PolledRecords) -> list[tuple[Place, bytes]]:
    return [
        ((each.part.topic, each.part.partition), value)
        for each in polled.parts
        if each.fetched
        for value in values_of(each.fetched)
    ]


def assigned(polled: PolledRecords) -> set[Place]:
    return set(places_of(polled.membership.assignment))


async def produce(broker: Broker, partition: int, *given: bytes, topic: str = "t") -> None:
    await broker.produce(ANYBODY, topic, draft(list(given)), ProduceOptions(partition=partition))


async def committed(broker: Broker) -> dict[Place, int]:
    found = await broker.groups.call(ANYBODY, GROUP, FetchOffsets())
    offsets: tuple[CommittedOffset, ...] = found.offsets
    return {(each.topic, each.partition): each.offset for each in offsets}
