"""Classic groups as data: the requests of Kafka's JoinGroup protocol, and their answers.

The members choose a leader, which assigns the partitions. Subscriptions and assignments are texts in Kafka's encoding
that only the clients read. Times are in ms.
"""

from __future__ import annotations

import msgspec

from tidelog.wire.counts import Count
from tidelog.wire.groups import Done, GroupRequest


class ClassicProtocol(msgspec.Struct, frozen=True):
    """A way to assign partitions that a client offers, with its subscription in Kafka's encoding."""

    name: str
    metadata: bytes


class ClassicMember(msgspec.Struct, frozen=True):
    """A member, as the leader of the group gets it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """`members`: for the leader only, which assigns partitions to them. `skip_assignment`: the leader keeps the
    assignment of this generation (a static member that came back)."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[ClassicMember, ...] = ()
    skip_assignment: bool = False


class JoinGroup(GroupRequest[JoinedGroup], frozen=True, kw_only=True, tag="join"):
    """Joins a classic group and waits until every member has joined, or `rebalance_timeout_ms` is over.
    `known_member_required`: a first join is refused with the member id to join with (`MemberIdRequired`)."""

    member_id: str = ""
    instance_id: str | None = None
    session_timeout_ms: Count
    rebalance_timeout_ms: Count
    protocol_type: str
    protocols: tuple[ClassicProtocol, ...]
    known_member_required: bool = False
    client_id: str = ""
    client_host: str = ""


class MemberAssignment(msgspec.Struct, frozen=True):
    """A member's partitions, in Kafka's encoding."""

    member_id: str
    assignment: bytes


class SyncedGroup(msgspec.Struct, frozen=True):
    """The member's partitions, in Kafka's encoding."""

    protocol_type: str
    protocol: str
    assignment: bytes


class SyncGroup(GroupRequest[SyncedGroup], frozen=True, kw_only=True, tag="sync"):
    """Waits for the leader's assignments; the leader brings them. An empty protocol is not compared."""

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str = ""
    protocol: str = ""
    assignments: tuple[MemberAssignment, ...] = ()


class ClassicHeartbeat(GroupRequest[Done], frozen=True, kw_only=True, tag="classic_heartbeat"):
    """Keeps a member of a classic group. Raises `RebalanceInProgress` while the member has to join again."""

    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(msgspec.Struct, frozen=True):
    """By `member_id`, or by `instance_id` alone."""

    member_id: str = ""
    instance_id: str | None = None


class LeaveGroup(GroupRequest[Done], frozen=True, kw_only=True, tag="leave"):
    """Takes members out of a classic group; all or none."""

    members: tuple[LeavingMember, ...]
