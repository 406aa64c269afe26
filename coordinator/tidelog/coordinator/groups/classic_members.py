"""The members of a classic group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as Kafka's coordinator does them.

    Empty ──join──> PreparingRebalance ──all have joined──> CompletingRebalance ──the leader syncs──> Stable
                         ^                                           │                                  │
                         └───────────── a member joins, leaves, or its session ends ────────────────────┘

- Join barrier: a rebalance waits until every member has joined, at most the longest `rebalance_timeout_ms`. Dynamic
  members that have not joined are then removed; static ones stay until their session ends. The first rebalance of an
  empty group waits ``group.initial.rebalance.delay.ms`` for more members, again after each one, in the same bound.
- Sync barrier: the leader brings the assignments. Members that do not sync in the same time are removed.
- A generation gets one assignment. Its number is stored before any member learns it, and is never used again.
- The assignments are stored when the group becomes Stable, before any member learns its own. A new coordinator
  continues in that generation, and no member has to join again. A rebalance that was not finished is dropped: its
  members are refused (`MemberFenced`, `UnknownMember`) and join again.

Rules: Kafka's `GroupMetadataManager` (classic group). Differences, all towards fewer lost members:

- A JoinGroup whose client is gone, and which could not know its member id, leaves no member behind.
- A static member that comes back with other topics starts a rebalance (Kafka: only if the protocol changes).
- A member may replace its protocols by others if the other members support one of them.
- LeaveGroup takes out all the members that it names or none.
- A static member that has not joined again does not have to sync, either.

Errors: `MemberFenced` is Kafka's ILLEGAL_GENERATION, `InstanceInUse` FENCED_INSTANCE_ID, `WrongGroupKind`
INCONSISTENT_GROUP_PROTOCOL, `GroupFull` GROUP_MAX_SIZE_REACHED; the others have Kafka's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.coordinator.groups.classic_description import any_subscribes, describe_group
from tidelog.coordinator.groups.classic_rebalance import COMPLETING, PREPARING, STABLE, ClassicRebalance
from tidelog.coordinator.groups.classic_roster import ClassicMember, described_by
from tidelog.coordinator.groups.group_step import Ticket
from tidelog.coordinator.groups.members import GroupContext
from tidelog.storage.errors import (
    GroupFull,
    GroupNotEmpty,
    InstanceInUse,
    Invalid,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    StaleMemberEpoch,
    TooLarge,
    UnknownMember,
    WrongGroupKind,
)
from tidelog.wire.classic_groups import ClassicHeartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from tidelog.wire.groups import CommitOffsets, Done, FetchOffsets, GroupDescription, GroupRequest

MEMBER_BYTES_MAX = 262_144
"""The subscriptions of one member, and its assignment, in bytes."""
_FULL_RETRY_S = 5.0
_NOTHING: frozenset[str] = frozenset()


class ClassicMembers:
    """Implements `Members`. `items`: the stored members by id."""

    def __init__(self, context: GroupContext, items: Mapping[str, bytes]) -> None:
        self._context = context
        self._rebalance = ClassicRebalance(context, items)
        self._roster = self._rebalance.roster

    def handle(self, ticket: Ticket, request: GroupRequest[Any]) -> None:
        if isinstance(request, JoinGroup):
            self._join(ticket, request)
        elif isinstance(request, SyncGroup):
            self._sync(ticket, request)
        elif isinstance(request, ClassicHeartbeat):
            self._heartbeat(ticket, request)
        else:
            assert isinstance(request, LeaveGroup)
            self._leave(ticket, request)
        self._rebalance.advance()

    def _join(self, ticket: Ticket, request: JoinGroup) -> None:
        self._check_join(request)
        member = self._joining_member(request)
        self._check_protocols(request, member)
        if member is None:
            self._check_room(request)
            self._join_new(ticket, request)
        elif not request.member_id:
            self._rebalance.replace_static(member, self._new_id(request), described_by(request, member), ticket)
        else:
            self._join_again(ticket, request, member)

    def _check_join(self, request: JoinGroup) -> None:
        limits = self._context.limits
        low, high = limits.session_timeout_ms_min, limits.session_timeout_ms_max
        if not low <= request.session_timeout_ms <= high:
            raise Invalid(f"session_timeout_ms must be between {low} and {high}", field="session_timeout_ms")
        if not request.protocol_type or not request.protocols:
            raise WrongGroupKind("a member must name a protocol type and at least one protocol")
        size = sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
        if size > MEMBER_BYTES_MAX:
            raise _too_large(f"the protocols of the member have {size} bytes")

    def _joining_member(self, request: JoinGroup) -> ClassicMember | None:
        """The member that joins again or that the request replaces; None if it is a new one."""
        if not request.member_id:
            return self._roster.of_instance(request.instance_id)
        if request.member_id in self._roster.pending:
            return None
        return self._member(request.member_id, request.instance_id)

    def _check_protocols(self, request: JoinGroup, member: ClassicMember | None) -> None:
        others = len(self._roster) - (member is not None)
        if others and request.protocol_type != self._rebalance.protocol_type:
            raise WrongGroupKind(
                f"the members of group {self._context.name} have the protocol type {self._rebalance.protocol_type!r}"
            )
        if not self._roster.supports(request.protocols, member):
            raise WrongGroupKind(f"no protocol of the request is supported by all members of {self._context.name}")

    def _check_room(self, request: JoinGroup) -> None:
        most = self._context.limits.members_max
        if request.member_id not in self._roster.pending and len(self) >= most:
            text = f"group {self._context.name} has {most} members, as many as group.max.size allows"
            raise GroupFull(text, retry_after_s=_FULL_RETRY_S)

    def _join_new(self, ticket: Ticket, request: JoinGroup) -> None:
        member_id = request.member_id or self._new_id(request)
        if request.known_member_required and not request.member_id and request.instance_id is None:
            self._rebalance.expect(member_id, request.session_timeout_ms)
            self._context.refuse(
                ticket, MemberIdRequired(f"join again with the member id {member_id}", member_id=member_id)
            )
            return
        member = ClassicMember(member_id, described_by(request), joining=ticket, knows_id=bool(request.member_id))
        self._rebalance.add(member, request.protocol_type)

    def _join_again(self, ticket: Ticket, request: JoinGroup, member: ClassicMember) -> None:
        changed = member.stored.protocols != request.protocols
        state = self._rebalance.state
        self._rebalance.describe(member, described_by(request, member), request.protocol_type)
        if state == PREPARING:
            self._rebalance.wait_for_others(member, ticket)
        elif changed or (state == STABLE and member.member_id == self._rebalance.leader):
            self._rebalance.wait_for_others(member, ticket)
            self._rebalance.prepare()
        else:
            self._rebalance.answer_join(member, ticket)

    def _sync(self, ticket: Ticket, request: SyncGroup) -> None:
        member = self._member_of_generation(request.member_id, request.instance_id, request.generation)
        rebalance = self._rebalance
        if rebalance.state == PREPARING:
            raise self._rejoin()
        for said, chosen in ((request.protocol_type, rebalance.protocol_type), (request.protocol, rebalance.protocol)):
            if said and said != chosen:
                raise WrongGroupKind(f"group {self._context.name} uses {chosen!r} in this generation, not {said!r}")
        if rebalance.state == STABLE:
            rebalance.answer_sync(member, ticket)
            return
        leads = member.member_id == rebalance.leader
        if leads and max((len(each.assignment) for each in request.assignments), default=0) > MEMBER_BYTES_MAX:
            raise _too_large("the assignment of a member")
        rebalance.wait_for_leader(member, ticket)
        if leads:
            rebalance.assign({each.member_id: each.assignment for each in request.assignments})

    def _heartbeat(self, ticket: Ticket, request: ClassicHeartbeat) -> None:
        member = self._member_of_generation(request.member_id, request.instance_id, request.generation)
        self._rebalance.seen(member)
        if self._rebalance.state == PREPARING:
            raise self._rejoin()
        self._context.reply(ticket, Done(), _NOTHING)

    def _leave(self, ticket: Ticket, request: LeaveGroup) -> None:
        pending = [each.member_id for each in request.members if each.member_id in self._roster.pending]
        named = [self._leaving(each) for each in request.members if each.member_id not in self._roster.pending]
        self._rebalance.forget(pending)
        leaving = {member.member_id: member for member in named}.values()
        self._rebalance.remove(leaving, lambda member: UnknownMember(f"member {member.member_id} has left the group"))
        self._context.reply(ticket, Done())

    def _leaving(self, member: LeavingMember) -> ClassicMember:
        if member.member_id:
            return self._member(member.member_id, member.instance_id)
        found = self._roster.of_instance(member.instance_id)
        if found is None:
            raise UnknownMember(f"group {self._context.name} has no member with instance id {member.instance_id!r}")
        return found

    def check_commit(self, request: CommitOffsets) -> None:
        if not request.member_id:
            raise GroupNotEmpty(
                f"group {self._context.name} has members: only they commit, with their member id and generation"
            )
        member = self._member_of_generation(request.member_id, request.instance_id, request.member_epoch)
        if self._rebalance.state == COMPLETING:
            raise self._rejoin()
        self._rebalance.seen(member)

    def check_fetch(self, request: FetchOffsets) -> None:
        self._member_of_generation(request.member_id, None, request.member_epoch)

    def keep(self, member_id: str, epoch: int) -> None:  # noqa: ARG002
        raise StaleMemberEpoch(f"group {self._context.name} has members of the classic protocol: send a heartbeat")

    def _member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        owner = self._roster.of_instance(instance_id)
        if owner is not None and owner.member_id != member_id:
            raise InstanceInUse(f"another member has taken the instance id {instance_id!r}: stop this one")
        member = self._roster.get(member_id)
        if member is None or (instance_id is not None and owner is None):
            raise UnknownMember(f"group {self._context.name} has no member {member_id!r}: join again")
        return member

    def _member_of_generation(self, member_id: str, instance_id: str | None, generation: int) -> ClassicMember:
        member = self._member(member_id, instance_id)
        current = self._rebalance.generation
        if generation != current:
            raise MemberFenced(
                f"group {self._context.name} is in generation {current}, not {generation}: join it again"
            )
        return member

    def _rejoin(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"group {self._context.name} changes its assignment: join it again")

    def _new_id(self, request: JoinGroup) -> str:
        return f"{request.instance_id or request.client_id or 'member'}-{self._context.entropy.new_id()}"

    def subscribes(self, topic: str) -> bool:
        return any_subscribes(self._rebalance, topic)

    def describe(self) -> GroupDescription:
        return describe_group(self._context.name, self._rebalance)

    def withdraw(self, ticket: Ticket) -> None:
        self._rebalance.withdraw(ticket)
        self._rebalance.advance()

    def tick(self) -> None:
        self._rebalance.expire()
        self._rebalance.advance()

    def extend_sessions(self) -> None:
        self._rebalance.extend()

    @property
    def due_ms(self) -> int | None:
        return self._rebalance.due_ms

    def __len__(self) -> int:
        return len(self._roster) + len(self._roster.pending)


def _too_large(found: str) -> TooLarge:
    return TooLarge(
        f"{found}, more than {MEMBER_BYTES_MAX}", limit_name="MEMBER_BYTES_MAX", limit_bytes=MEMBER_BYTES_MAX
    )
