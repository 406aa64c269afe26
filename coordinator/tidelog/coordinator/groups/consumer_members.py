"""The members of a consumer group, in the model of KIP-848: the coordinator computes a target assignment, and each
member reaches it by its own heartbeats.

    heartbeat ──▶ joins, leaves, subscribes ──▶ the group's epoch grows ──▶ AssignmentTask ──▶ assigned: new targets
    heartbeat ──▶ confirms a revocation     ──▶ reconciliation: revoke what the target lacks, assign what is free

`reconciliation` keeps invariant 8. `target_assignment` has the targets, `consumer_membership` decides who is a member.
Rules for epochs:

- A member is in the epoch of its present assignment. If its partitions stay the same, it keeps its epoch, and a
  rebalance does not affect it. (In Kafka every member moves to every epoch of the group.)
- A request in the member's present epoch proves that the member has had the answer that began this epoch. Only such a
  request confirms a revocation. A request in the epoch of the member's previous request is a repetition: the answer was
  lost, or a broker delayed the request. It is answered, and changes only the subscription. Any other epoch is fenced.
- A commit is accepted in the member's present epoch only, and not for a partition of the group's topics that the member
  does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidelog.coordinator.groups.assignors.assignment import Assignment, Partition
from tidelog.coordinator.groups.consumer_member import (
    ConsumerMember,
    Partitions,
    StoredMember,
    check_heartbeat,
    described,
    partition_set,
)
from tidelog.coordinator.groups.consumer_membership import ConsumerMembership
from tidelog.coordinator.groups.group_step import GroupEvent, Ticket
from tidelog.coordinator.groups.member_roster import MemberRoster
from tidelog.coordinator.groups.members import ALL_CHANGES, GroupContext
from tidelog.coordinator.groups.reconciliation import Reconciliation
from tidelog.coordinator.groups.stored import StoredHead
from tidelog.coordinator.groups.target_assignment import KIND, TargetAssignment
from tidelog.storage.errors import (
    GroupNotEmpty,
    MemberFenced,
    StaleMemberEpoch,
)
from tidelog.wire.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    CommitOffsets,
    FetchOffsets,
    GroupDescription,
    GroupRequest,
    Heartbeat,
    HeartbeatAnswer,
)

RECONCILING_INTERVAL_MS = 200
"""When a member that waits for partitions is to send its next heartbeat; later in a group of more members."""
HEARTBEATS_PER_SESSION = 3
SILENT = "sent no heartbeat within its session timeout"
KEEPING = "did not give up partitions within its rebalance timeout"


class ConsumerMembers:
    """Implements `Members`."""

    def __init__(self, context: GroupContext, items: Mapping[str, bytes]) -> None:
        self._context = context
        self._roster = MemberRoster(context)
        self._partitions = Reconciliation(context)
        self._target = TargetAssignment(context, self._roster.members, self._partitions)
        self._membership = ConsumerMembership(context, self._roster, self._partitions, self._target)
        for member_id, value in items.items():
            self._membership.restore(member_id, msgspec.msgpack.decode(value, type=StoredMember))
        self.extend_sessions()

    def handle(self, ticket: Ticket, request: GroupRequest[Any]) -> None:
        assert isinstance(request, Heartbeat)
        check_heartbeat(request, self._context.limits)
        self._target.notice_topics()
        if request.member_epoch == LEAVE_EPOCH:
            self._leave(ticket, request)
        elif request.member_epoch == STATIC_LEAVE_EPOCH:
            self._leave_for_a_while(ticket, request)
        elif request.member_epoch == JOIN_EPOCH:
            self._join(ticket, request)
        else:
            self._keep(ticket, request)
        self._target.finish_step()

    def check_commit(self, request: CommitOffsets) -> None:
        if not request.member_id:
            raise GroupNotEmpty(
                f"the group {self._context.name} has members: commit as one of them, or stop them first"
            )
        self._target.notice_topics()
        member = self._roster.in_epoch(request.member_id, request.member_epoch)
        for offset in request.offsets:
            partition = Partition(offset.topic, offset.partition)
            if not self._partitions.holds(member, partition) and self.subscribes(offset.topic):
                raise StaleMemberEpoch(
                    f"partition {offset.partition} of {offset.topic} is not assigned to the member {member.member_id}: "
                    "send a heartbeat, and commit only what is assigned"
                )

    def check_fetch(self, request: FetchOffsets) -> None:
        self._roster.in_epoch(request.member_id, request.member_epoch)

    def keep(self, member_id: str, epoch: int) -> None:
        self._target.notice_topics()
        member = self._roster.members.get(member_id)
        if member is None or member.epoch != epoch or not member.informed:
            raise StaleMemberEpoch(f"the member {member_id} has to learn of its assignment: send a heartbeat")
        member.known_epoch = epoch
        self._roster.renew_session(member)

    def subscribes(self, topic: str) -> bool:
        return self._target.subscriptions.includes(topic)

    def describe(self) -> GroupDescription:
        head = self._context.head or StoredHead()
        return GroupDescription(
            group=self._context.name,
            kind=KIND,
            state=self._state(),
            epoch=self._partitions.epoch,
            assignor=head.assignor,
            protocol_type=KIND,
            members=tuple(described(member) for _, member in sorted(self._roster.members.items())),
        )

    def withdraw(self, ticket: Ticket) -> None:
        """No request waits here."""

    def tick(self) -> None:
        self._target.notice_topics()
        now_ms = self._context.moment.monotonic_ms
        for ended, reason in ((self._roster.sessions, SILENT), (self._partitions.overdue, KEEPING)):
            for member_id in ended.expired(now_ms):
                self._note_end(self._roster.members[member_id], reason)
                self._membership.remove(self._roster.members[member_id])
        self._target.finish_step()

    def _note_end(self, member: ConsumerMember, reason: str) -> None:
        client = member.profile.client_id or "unnamed"
        text = f"member {member.member_id} (client {client}) {reason}: its {len(member.held)} partitions go to others"
        self._context.note(GroupEvent("session_ended", text))

    def extend_sessions(self) -> None:
        for member in self._roster:
            self._roster.renew_session(member)
            self._partitions.extend(member)

    @property
    def due_ms(self) -> int | None:
        times = (self._roster.sessions.due_ms, self._partitions.overdue.due_ms, self._target.due_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def __len__(self) -> int:
        return len(self._roster)

    def assigned(self, epoch: int, target: Assignment) -> None:
        """See `GroupMachine.assigned`. From members that yield, the partitions are taken in this step."""
        self._target.notice_topics()
        for member in self._target.assigned(epoch, target):
            if member.yields:
                self._partitions.reconcile(member)
            self._roster.store(member)
        self._target.finish_step()

    def _join(self, ticket: Ticket, request: Heartbeat) -> None:
        member = self._roster.members.get(request.member_id)
        repeated = member is not None and member.known_epoch == JOIN_EPOCH and not member.away
        member = self._membership.joining(request)
        self._membership.tell(member, request)
        self._roster.renew_session(member)
        self._target.assign_sole()
        if not repeated:
            self._partitions.reconcile(member)
        self._roster.store(member)
        self._answer(ticket, member)

    def _leave(self, ticket: Ticket, request: Heartbeat) -> None:
        self._membership.remove(self._roster.named_by(request))
        self._context.reply(ticket, HeartbeatAnswer(request.member_id, LEAVE_EPOCH, 0, ()))

    def _leave_for_a_while(self, ticket: Ticket, request: Heartbeat) -> None:
        member = self._roster.named_by(request)
        self._membership.leave_for_a_while(member)
        self._context.reply(ticket, HeartbeatAnswer(member.member_id, STATIC_LEAVE_EPOCH, 0, ()))

    def _keep(self, ticket: Ticket, request: Heartbeat) -> None:
        """An answer that says nothing new waits for the member's own key only, so that reading goes on while the store
        is away."""
        member = self._roster.named_by(request)
        self._check_epoch(member, request)
        self._roster.renew_session(member)
        changed = self._membership.tell(member, request)
        if request.member_epoch == member.epoch:
            member.known_epoch = request.member_epoch
            changed |= self._partitions.confirm(member, _owned(request))
        if request.member_epoch == member.epoch or member.yields:
            changed |= self._partitions.reconcile(member)
        if changed:
            self._roster.store(member)
        rests_on = ALL_CHANGES if changed else frozenset({self._roster.key(member)})
        self._answer(ticket, member, rests_on)

    def _check_epoch(self, member: ConsumerMember, request: Heartbeat) -> None:
        known = request.member_epoch in (member.epoch, member.known_epoch)
        earlier = member.yields and max(1, member.began_epoch) <= request.member_epoch < member.epoch
        if member.away or not (known or earlier):
            raise MemberFenced(
                f"the member {member.member_id} is in epoch {member.epoch}, not {request.member_epoch}: give up all "
                "partitions and join again"
            )

    def _answer(self, ticket: Ticket, member: ConsumerMember, rests_on: frozenset[str] | None = ALL_CHANGES) -> None:
        session_ms = member.profile.session_timeout_ms
        answer = HeartbeatAnswer(member.member_id, member.epoch, self._interval_ms(member), member.answer, session_ms)
        self._context.reply(ticket, answer, rests_on)

    def _interval_ms(self, member: ConsumerMember) -> int:
        usual_ms = min(
            self._context.limits.heartbeat_interval_ms, member.profile.session_timeout_ms // HEARTBEATS_PER_SESSION
        )
        if member.settled and not self._target.pending:
            return usual_ms
        return min(max(RECONCILING_INTERVAL_MS, len(self._roster)), usual_ms)

    def _state(self) -> str:
        if not len(self._roster):
            return "Empty"
        if self._target.pending:
            return "Assigning"
        return "Stable" if all(member.reconciled for member in self._roster) else "Reconciling"


def _owned(request: Heartbeat) -> Partitions | None:
    return None if request.owned is None else partition_set(request.owned)
