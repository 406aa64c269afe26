"""Consumer groups as data: the requests that a group's coordinator takes, and its answers.

One declaration serves the HTTP interface, the Python client, the calls between brokers and the group's state machine
(`coordinator/groups`). Each request names its answer: `GroupRequest[A]` is answered by an `A`.

    consumer groups (the model of KIP-848)   Heartbeat
    classic groups                           in `classic_groups`
    both                                     CommitOffsets, FetchOffsets, DeleteOffsets, DescribeGroup, DeleteGroup
    a front door's state of a client         ReadInstance, WriteInstance, DeleteInstance

`group_calls` lists all requests with their answers.

Times are in ms. Offsets are those of the next record to read, as in Kafka.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tidelog.wire.counts import Count

A = TypeVar("A")

JOIN_EPOCH = 0
"""The `member_epoch` of a heartbeat that joins a group."""
LEAVE_EPOCH = -1
"""The `member_epoch` of a heartbeat that leaves the group; of a commit: by no member, which an empty group accepts."""
STATIC_LEAVE_EPOCH = -2
"""The `member_epoch` of a heartbeat of a static member that will come back: its partitions wait for its session."""


class GroupRequest(
    msgspec.Struct,
    Generic[A],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="call",
):
    """A request to the coordinator of a group, answered by an `A`."""


class Done(msgspec.Struct, frozen=True):
    """The request was carried out."""


class TopicPartitions(msgspec.Struct, frozen=True, order=True):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[Count, ...]


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """`assignment`: the partitions that the member may read. A partition that it owns and that is not among them must
    be given up: the member stops reading it, commits, and confirms by a heartbeat in the new `member_epoch` whose
    `owned` lacks it. A member's epoch changes exactly when its assignment does. The next heartbeat is due after
    `heartbeat_interval_ms`, which is short while the member waits for partitions; without one the session ends after
    `session_timeout_ms`."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: Count
    assignment: tuple[TopicPartitions, ...]
    session_timeout_ms: Count = 0


class Heartbeat(GroupRequest[HeartbeatAnswer], frozen=True, kw_only=True, tag="heartbeat"):
    """Joins a group, stays in it, or leaves it, as `member_epoch` says. A joining member may choose its `member_id`;
    empty: the coordinator makes one. None: as in the member's last heartbeat, or the default.

    `owned`: the partitions that the member holds at this moment; it confirms what the member has given up. `yields`:
    the coordinator may take partitions away without the member's confirmation, because a broker keeps the member's
    position and checks its epoch at each read (REST v2). `topic_pattern`: a regular expression (RE2) on topic names,
    besides `topics`. `rack`: where the consumer runs, a tie-breaker for the assignment."""

    member_id: str = ""
    member_epoch: int = JOIN_EPOCH
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    assignor: str | None = None
    owned: tuple[TopicPartitions, ...] | None = None
    session_timeout_ms: Count | None = None
    rebalance_timeout_ms: Count | None = None
    rack: str | None = None
    yields: bool | None = None
    client_id: str = ""
    client_host: str = ""


class PartitionOffset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `offset` of the next record to read. `metadata`: a note of the consumer."""

    topic: str
    partition: Count
    offset: Count
    leader_epoch: int = -1
    metadata: str = ""


class CommitOffsets(GroupRequest[Done], frozen=True, kw_only=True, tag="commit"):
    """Stores `offsets`, all or none. `member_epoch`: the member's epoch, or the generation of a classic group; without
    a `member_id` the group must have no members."""

    offsets: tuple[PartitionOffset, ...]
    member_id: str = ""
    member_epoch: int = LEAVE_EPOCH
    instance_id: str | None = None


class CommittedOffset(PartitionOffset, frozen=True, kw_only=True):
    """An offset and when it was committed, in ms since 1970 UTC."""

    committed_at_ms: int


class OffsetsAnswer(msgspec.Struct, frozen=True):
    """The committed offsets among those that were asked for, by topic and partition."""

    offsets: tuple[CommittedOffset, ...]


class FetchOffsets(GroupRequest[OffsetsAnswer], frozen=True, kw_only=True, tag="offsets"):
    """The committed offsets of `partitions`; None: of all. With a `member_id` the member must be in the group in
    `member_epoch`."""

    partitions: tuple[TopicPartitions, ...] | None = None
    member_id: str = ""
    member_epoch: int = LEAVE_EPOCH


class DeleteOffsets(GroupRequest[Done], frozen=True, kw_only=True, tag="delete_offsets"):
    """Forgets the committed offsets of `partitions`. No member of the group may subscribe to their topics."""

    partitions: tuple[TopicPartitions, ...]


class DeleteGroup(GroupRequest[Done], frozen=True, kw_only=True, tag="delete"):
    """Removes a group without members, with its offsets."""


class GroupMemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A member. `assignment`: what it may read now; `target`: what it will have. `metadata` and `assigned`: the texts
    of a classic protocol, which only its clients can read."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    member_epoch: int = 0
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assignment: tuple[TopicPartitions, ...] = ()
    target: tuple[TopicPartitions, ...] = ()
    metadata: bytes = b""
    assigned: bytes = b""


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """`kind`: ``consumer``, ``classic``, or empty for a group that has only offsets. `state`: Kafka's names (``Empty``,
    ``Assigning``, ``Reconciling``, ``Stable``; classic: ``PreparingRebalance``, ``CompletingRebalance``). `epoch`: the
    group's epoch or generation. `assignor`: or the chosen classic protocol."""

    group: str
    kind: str
    state: str
    epoch: int
    assignor: str = ""
    protocol_type: str = ""
    members: tuple[GroupMemberDescription, ...] = ()


class DescribeGroup(GroupRequest[GroupDescription], frozen=True, kw_only=True, tag="describe"):
    """The group and its members. Raises `NotFound` for a group that was never used."""


class ListedGroup(msgspec.Struct, frozen=True):
    """A group in a list. `kind` as in `GroupDescription`."""

    group: str
    kind: str


class GroupPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page of groups by name. `next` is the value of `after` for the next page; None on the last page."""

    groups: tuple[ListedGroup, ...]
    next: str | None = None


class InstanceState(msgspec.Struct, frozen=True):
    """State that a front door keeps for a client. `version` grows with each write."""

    data: bytes
    version: Count


class ReadInstance(GroupRequest[InstanceState], frozen=True, kw_only=True, tag="read_instance"):
    """The state of `instance`, which counts as in use. Raises `UnknownMember`."""

    instance: str


class WriteInstance(GroupRequest[InstanceState], frozen=True, kw_only=True, tag="write_instance"):
    """Replaces the state of `instance` if it is still at `version` (0: create it), else raises `Conflict`;
    `AlreadyExists` if it was to be created. It is dropped after `idle_timeout_ms` without a call. Not `durable`: the
    answer does not wait for the store, so a crash may bring back a state of a moment before.

    With a `member_id` the write counts as a heartbeat of that member. If the member is not in `member_epoch`, or does
    not have its whole target, the call raises `StaleMemberEpoch` and writes nothing: send a heartbeat."""

    instance: str
    data: bytes
    version: Count
    idle_timeout_ms: Count
    durable: bool = True
    member_id: str = ""
    member_epoch: int = LEAVE_EPOCH


class DeleteInstance(GroupRequest[Done], frozen=True, kw_only=True, tag="delete_instance"):
    """Drops the state of `instance`. Raises `UnknownMember`."""

    instance: str
