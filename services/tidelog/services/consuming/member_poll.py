"""One poll of a group's member, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits
from tidelog.wire.groups import Heartbeat, HeartbeatAnswer, PartitionOffset, TopicPartitions

EARLIEST, LATEST, NONE = "earliest", "latest", "none"
"""Where to begin without a committed offset (`auto.offset.reset`)."""


@dataclass(frozen=True)
class MemberPoll:
    """The request of a member.

    `heartbeat`: its id, epoch and subscription; the poll says itself what the member owns. `positions`: the next record
    to read of each partition that the member had after its last poll, in the order of that poll's answer. A partition
    without a position begins at the committed offset, otherwise at `from_position`. `commit`: store the positions
    first. `paused`: partitions to keep and not to read. The limits are for all partitions together."""

    heartbeat: Heartbeat
    limits: FetchLimits
    positions: Sequence[PartitionOffset] = ()
    commit: bool = True
    from_position: str = LATEST
    paused: frozenset[tuple[str, int]] = field(default_factory=frozenset)


@dataclass(frozen=True)
class PolledRecords:
    """The answer to the member.

    `membership`: its id, its epoch and the partitions that it may read now. `positions`: for the next poll, once the
    records are done. `revoked`: partitions of the request that are not the member's any more; their positions were
    committed if the poll commits. `parts`: the partitions that were read, in any order."""

    membership: HeartbeatAnswer
    positions: Sequence[PartitionOffset]
    parts: Sequence[FetchedPart] = ()
    revoked: Sequence[TopicPartitions] = ()
