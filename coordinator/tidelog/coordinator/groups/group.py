"""The state machine of one group: `Group` gives each request to the part that it concerns.

    consumer_members, classic_members    the members, of one of two kinds
    committed_offsets                    up to where the group has read
    kept_instances                       what front doors keep of their clients

A group without members may change its kind. A group that has neither members nor offsets nor instances is deleted
`LINGER_MS` after its last member left, so that its epochs go on for members that come back at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidelog.coordinator.groups.assignors.assignment import Assignment
from tidelog.coordinator.groups.classic_members import ClassicMembers
from tidelog.coordinator.groups.committed_offsets import CommittedOffsets
from tidelog.coordinator.groups.consumer_members import ConsumerMembers
from tidelog.coordinator.groups.group_step import GroupLimits, Moment, Outcome, Ticket, Topics
from tidelog.coordinator.groups.kept_instances import KeptInstances
from tidelog.coordinator.groups.members import GroupContext, Members
from tidelog.coordinator.groups.stored import StoredHead, head_key, names_in, parts_prefix
from tidelog.storage.errors import (
    Corrupt,
    GroupNotEmpty,
    NotFound,
    TidelogError,
    UnknownMember,
    WrongGroupKind,
)
from tidelog.storage.runtime import Entropy
from tidelog.wire.groups import (
    CommitOffsets,
    DeleteGroup,
    DeleteInstance,
    DeleteOffsets,
    DescribeGroup,
    Done,
    FetchOffsets,
    GroupDescription,
    GroupRequest,
    Heartbeat,
    OffsetsAnswer,
    ReadInstance,
    WriteInstance,
)

LINGER_MS = 600_000
EMPTY = "Empty"


class Group:
    """Implements `GroupMachine`. `items`: what `GroupStore.load` returned. Raises `Corrupt`."""

    def __init__(
        self, name: str, limits: GroupLimits, entropy: Entropy, items: Mapping[str, bytes], moment: Moment
    ) -> None:
        try:
            self._load(name, limits, entropy, items, moment)
        except msgspec.MsgspecError as error:
            raise Corrupt(head_key(name), f"a stored value of the group cannot be read: {error}") from None

    def handle(self, moment: Moment, topics: Topics, ticket: Ticket, request: GroupRequest[Any]) -> None:
        self._context.begin(moment, topics)
        try:
            self._carry_out(ticket, request)
        except TidelogError as error:
            self._context.refuse(ticket, error)

    def withdraw(self, moment: Moment, ticket: Ticket) -> None:
        self._context.begin(moment, self._context.topics)
        self._members.withdraw(ticket)

    def tick(self, moment: Moment, topics: Topics) -> None:
        self._context.begin(moment, topics)
        self._members.tick()
        self._instances.tick()
        self._offsets.tick(empty=not len(self._members))
        if self._unused and self._linger_ms() <= 0:
            self._delete()

    def extend_sessions(self, moment: Moment) -> None:
        self._context.begin(moment, self._context.topics)
        self._members.extend_sessions()
        self._instances.extend()

    def assigned(self, moment: Moment, topics: Topics, epoch: int, target: Assignment) -> None:
        self._context.begin(moment, topics)
        if isinstance(self._members, ConsumerMembers):
            self._members.assigned(epoch, target)

    def take(self) -> Outcome:
        return self._context.take()

    @property
    def due_ms(self) -> int | None:
        offsets_ms = self._offsets.due_ms(empty=not len(self._members))
        linger_ms = self._context.moment.monotonic_ms + max(self._linger_ms(), 0) if self._unused else None
        times = (self._members.due_ms, self._instances.due_ms, offsets_ms, linger_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def idle(self) -> bool:
        return not len(self._members) and not len(self._instances)

    def _load(
        self, name: str, limits: GroupLimits, entropy: Entropy, items: Mapping[str, bytes], moment: Moment
    ) -> None:
        stored = items.get(head_key(name))
        head = None if stored is None else msgspec.msgpack.decode(stored, type=StoredHead)
        self._context = GroupContext(name, limits, entropy, moment, head)
        members: dict[str, bytes] = {}
        offsets: dict[tuple[str, int], bytes] = {}
        instances: dict[str, bytes] = {}
        for key, value in items.items():
            match names_in(key, parts_prefix(name)):
                case "members", member_id:
                    members[member_id] = value
                case "offsets", topic, partition:
                    offsets[topic, int(partition)] = value
                case "instances", instance:
                    instances[instance] = value
        self._members: Members = _members(head.kind if head else "", self._context, members)
        self._offsets = CommittedOffsets(self._context, offsets)
        self._instances = KeptInstances(self._context, instances)

    def _carry_out(self, ticket: Ticket, request: GroupRequest[Any]) -> None:
        match request:
            case Heartbeat():
                self._members_of("consumer").handle(ticket, request)
            case CommitOffsets():
                self._commit(ticket, request)
            case FetchOffsets():
                self._fetch(ticket, request)
            case DeleteOffsets():
                self._delete_offsets(ticket, request)
            case DescribeGroup():
                self._context.reply(ticket, self._describe())
            case DeleteGroup():
                self._delete_group(ticket)
            case ReadInstance():
                self._instances.read(ticket, request)
            case WriteInstance():
                self._write_instance(ticket, request)
            case DeleteInstance():
                self._instances.delete(ticket, request)
            case _:
                self._members_of("classic").handle(ticket, request)

    def _members_of(self, kind: str) -> Members:
        """The members, if they are of `kind` or there are none."""
        if _kind(self._members) != kind:
            if len(self._members):
                raise WrongGroupKind(
                    f"the group {self._context.name} is of the kind {_kind(self._members)} while it has members: use "
                    "another group, or stop them first"
                )
            self._members = _members(kind, self._context, {})
        return self._members

    def _commit(self, ticket: Ticket, request: CommitOffsets) -> None:
        by_member = bool(len(self._members))
        if by_member:
            self._members.check_commit(request)
        elif request.member_id:
            raise UnknownMember(f"the group {self._context.name} has no member {request.member_id}: join again")
        self._offsets.check(request.offsets)
        self._offsets.commit(request.offsets, by_member=by_member)
        self._context.reply(ticket, Done())

    def _fetch(self, ticket: Ticket, request: FetchOffsets) -> None:
        if request.member_id:
            self._members.check_fetch(request)
        self._context.reply(ticket, OffsetsAnswer(self._offsets.fetch(request.partitions)))

    def _write_instance(self, ticket: Ticket, request: WriteInstance) -> None:
        if request.member_id:
            self._members.keep(request.member_id, request.member_epoch)
        self._instances.write(ticket, request)

    def _delete_offsets(self, ticket: Ticket, request: DeleteOffsets) -> None:
        self._existing()
        for part in request.partitions:
            if self._members.subscribes(part.topic):
                raise GroupNotEmpty(f"members of the group {self._context.name} subscribe to {part.topic}: stop them")
        self._offsets.delete(request.partitions)
        self._context.reply(ticket, Done())

    def _describe(self) -> GroupDescription:
        if len(self._members):
            return self._members.describe()
        head = self._existing()
        return GroupDescription(
            group=self._context.name,
            kind=head.kind,
            state=EMPTY,
            epoch=head.epoch,
            assignor=head.assignor,
            protocol_type=head.protocol_type,
        )

    def _delete_group(self, ticket: Ticket) -> None:
        self._existing()
        if len(self._members):
            raise GroupNotEmpty(f"the group {self._context.name} has {len(self._members)} members: stop them first")
        self._offsets.delete_all()
        if not len(self._instances):
            self._delete()
        self._context.reply(ticket, Done())

    def _existing(self) -> StoredHead:
        if self._context.head is None:
            raise NotFound(f"there is no group {self._context.name}")
        return self._context.head

    @property
    def _unused(self) -> bool:
        return self._context.head is not None and self.idle and not len(self._offsets)

    def _linger_ms(self) -> int:
        """How long an unused group is kept from now on."""
        emptied_at_ms = self._context.head.emptied_at_ms if self._context.head else 0
        return emptied_at_ms + LINGER_MS - self._context.moment.now_ms

    def _delete(self) -> None:
        self._context.drop_head()
        self._members = _members(_kind(self._members), self._context, {})


def _members(kind: str, context: GroupContext, items: Mapping[str, bytes]) -> Members:
    if kind == "classic":
        return ClassicMembers(context, items)
    return ConsumerMembers(context, items)


def _kind(members: Members) -> str:
    return "consumer" if isinstance(members, ConsumerMembers) else "classic"
