"""The state of a classic group: its generation, its barriers and timers.

`classic_members` decides what a request may do; this module does it. After each step, call `advance`, which ends the
join barrier once its members are there or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from tidelog.coordinator.groups.classic_record import ClassicRecord
from tidelog.coordinator.groups.classic_roster import ClassicMember, ClassicRoster, StoredClassicMember
from tidelog.coordinator.groups.deadlines import Deadlines
from tidelog.coordinator.groups.group_step import GroupEvent, Ticket
from tidelog.coordinator.groups.join_barrier import JoinBarrier
from tidelog.coordinator.groups.members import GroupContext
from tidelog.storage.errors import (
    InstanceInUse,
    RebalanceInProgress,
    TidelogError,
    UnknownMember,
)
from tidelog.wire.classic_groups import JoinedGroup, SyncedGroup

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long the first JoinGroup of a member may wait. Then its client has probably gone and cannot say so."""


class ClassicRebalance:
    """See the head of the module. `generation`, `protocol` and `leader` are those that members know."""

    def __init__(self, context: GroupContext, items: Mapping[str, bytes]) -> None:
        self._context = context
        self._record = ClassicRecord(context, items)
        head, stored = self._record.head, self._record.members
        self.roster = ClassicRoster(stored)
        self.state = STABLE if stored else EMPTY
        self.generation = head.assigned_epoch if stored else head.epoch
        self.protocol_type, self.protocol, self.leader = head.protocol_type, head.protocol, head.leader
        self._sessions = Deadlines()
        self._waiting: dict[Ticket, str] = {}
        self._barrier = JoinBarrier(context.limits.initial_rebalance_delay_ms)
        self.extend()
        if not self._record.whole:
            self.prepare()

    def expect(self, member_id: str, session_timeout_ms: int) -> None:
        """The client will join with `member_id`; a join barrier waits for it."""
        self.roster.pending[member_id] = session_timeout_ms
        self._sessions.set(member_id, self._now_ms + session_timeout_ms)

    def forget(self, member_ids: Iterable[str]) -> None:
        """These clients will not join."""
        for member_id in member_ids:
            self.roster.pending.pop(member_id, None)
            self._sessions.drop(member_id)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """A new member waits in the join barrier."""
        if not len(self.roster):
            self.protocol_type = protocol_type
        self.roster.add(member)
        self.roster.joined.add(member.member_id)
        if member.joining is not None:
            self._waiting[member.joining] = member.member_id
        self._sessions.set(member.member_id, self._now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        if self.state == PREPARING:
            self._barrier.grow()
        self.prepare()

    def describe(self, member: ClassicMember, stored: StoredClassicMember, protocol_type: str) -> None:
        """`member` joins again as `stored` says."""
        self.roster.describe(member, stored)
        if len(self.roster) == 1:
            self.protocol_type = protocol_type

    def wait_for_others(self, member: ClassicMember, ticket: Ticket) -> None:
        """`member` waits in the join barrier with `ticket`, which replaces an earlier one."""
        self._refuse_waiting(member, _replaced)
        member.joining = ticket
        self._waiting[ticket] = member.member_id
        self.roster.joined.add(member.member_id)
        self._sessions.drop(member.member_id)

    def wait_for_leader(self, member: ClassicMember, ticket: Ticket) -> None:
        """`member` waits in the sync barrier with `ticket`, which replaces an earlier one."""
        self._refuse_waiting(member, _replaced)
        member.syncing, member.synced = ticket, True
        self._waiting[ticket] = member.member_id
        self._sessions.drop(member.member_id)

    def replace_static(self, old: ClassicMember, new_id: str, stored: StoredClassicMember, ticket: Ticket) -> None:
        """The client of the static member `old` has started again and gets the id `new_id`. In a stable group it takes
        over the assignment, if that stays right."""
        taken = f"another member has taken the instance id {old.instance_id!r}: stop this one"
        self._refuse_waiting(old, lambda: InstanceInUse(taken))
        new = ClassicMember(new_id, stored)
        self.roster.remove(old)
        self.roster.add(new)
        self._sessions.drop(old.member_id)
        if self.leader == old.member_id:
            self.leader = new_id
        if self.state == STABLE and self.roster.keeps(self.protocol, old, new):
            self._store_stable()
            self.answer_join(new, ticket)
        else:
            self.wait_for_others(new, ticket)
            self.prepare()

    def prepare(self) -> None:
        """A rebalance begins, unless one has: all members have to join again."""
        if self.state == PREPARING:
            return
        begin = self._barrier.begin_first if self.state == EMPTY else self._barrier.begin
        begin(self._now_ms, self.roster.rebalance_timeout_ms())
        self.state = PREPARING
        for member in self.roster:
            if member.syncing is not None:
                self._refuse_waiting(member, self._rebalances)
                self.seen(member)
            member.synced = False
        self.roster.joined = {member.member_id for member in self.roster if member.joining is not None}

    def remove(self, members: Iterable[ClassicMember], error: Callable[[ClassicMember], TidelogError]) -> None:
        """These members are gone; their waiting requests get `error`."""
        gone = list(members)
        for member in gone:
            self._refuse_waiting(member, partial(error, member))
            self._drop(member)
        if gone:
            self.prepare()

    def answer_join(self, member: ClassicMember, ticket: Ticket) -> None:
        """`member` is in this generation. The leader also gets the members: it assigns partitions to them, or
        keeps the assignment."""
        leads = member.member_id == self.leader
        answer = JoinedGroup(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            member_id=member.member_id,
            members=self.roster.for_leader(self.protocol) if leads else (),
            skip_assignment=leads and self.state == STABLE,
        )
        member.joining, member.knows_id = None, True
        self._reply(ticket, answer)
        self.seen(member)

    def answer_sync(self, member: ClassicMember, ticket: Ticket) -> None:
        """`member` gets its assignment of this generation."""
        member.syncing, member.synced = None, True
        self._reply(ticket, SyncedGroup(self.protocol_type, self.protocol, member.stored.assignment))
        self.seen(member)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """The leader has assigned partitions: the group is stable. A member that it left out has none."""
        self.state = STABLE
        for member in self.roster:
            member.assign(self.generation, assignments.get(member.member_id, b""))
        self._store_stable()
        text = f"generation {self.generation} has {len(self.roster)} members; {self.leader} assigned the partitions"
        self._context.note(GroupEvent("rebalanced", text))
        for member in self.roster:
            if member.syncing is not None:
                self.answer_sync(member, member.syncing)

    def seen(self, member: ClassicMember) -> None:
        """The client of `member` lives: its session begins anew. A member that waits for a barrier needs none."""
        if not member.waits:
            self._sessions.set(member.member_id, self._now_ms + member.stored.session_timeout_ms)

    def withdraw(self, ticket: Ticket) -> None:
        """The client of `ticket` is gone."""
        member = self.roster.get(self._waiting.pop(ticket, ""))
        if member is None:
            return
        member.joining = member.syncing = None
        if member.knows_id or member.instance_id is not None:
            self.seen(member)
        else:
            self._drop(member)

    def expire(self) -> None:
        """End the sessions that are due."""
        due = self._sessions.expired(self._now_ms)
        self.forget(due)
        gone = [member for member in map(self.roster.get, due) if member is not None]
        self._end(gone, "was silent for its session timeout")

    def extend(self) -> None:
        """Sessions and barriers begin anew."""
        for member_id, session_timeout_ms in self.roster.pending.items():
            self._sessions.set(member_id, self._now_ms + session_timeout_ms)
        for member in self.roster:
            self.seen(member)
        self._barrier.restart(self._now_ms, self.roster.rebalance_timeout_ms())

    def advance(self) -> None:
        """End the barriers whose members are all there, or whose time is over."""
        if self.state in (COMPLETING, STABLE) and self._barrier.over(self._now_ms):
            self._barrier.end()
            late = [m for m in self.roster if m.member_id in self.roster.joined and not m.synced]
            self._end(late, "did not sync in time")
        if self.state == PREPARING and self._join_is_over():
            self._end_join()

    @property
    def due_ms(self) -> int | None:
        return min((due for due in (self._sessions.due_ms, self._barrier.due_ms) if due is not None), default=None)

    def _join_is_over(self) -> bool:
        nobody = not len(self.roster) and not self.roster.pending
        if self._barrier.first and not nobody:
            return self._barrier.first_over(self._now_ms)
        return self.roster.all_joined() or self._barrier.over(self._now_ms)

    def _end_join(self) -> None:
        for member in self.roster:
            if member.member_id not in self.roster.joined and member.instance_id is None:
                self._note_end(member, "did not join in time")
                self._drop(member)
        joined = [member.member_id for member in self.roster if member.member_id in self.roster.joined]
        wait_ms = self.roster.rebalance_timeout_ms()
        if not joined and len(self.roster):
            self._barrier.prolong(self._now_ms, wait_ms)
            return  # only static members whose sessions still run: none of them can lead
        self._barrier.begin(self._now_ms, wait_ms)
        self.generation = self._record.head.epoch + 1
        if not joined:
            self._barrier.end()
            self.state, self.protocol, self.leader = EMPTY, "", ""
            self._record.store_empty(self.generation)
            return
        self._complete(joined)

    def _complete(self, joined: list[str]) -> None:
        self.state = COMPLETING
        self.protocol = self.roster.choose_protocol()
        if self.leader not in joined:
            self.leader = joined[0]
        self._record.store_generation(self.generation, self.roster.ids_of_instances)
        for member in self.roster:
            member.assign(self.generation, b"")
            if member.joining is not None:
                self.answer_join(member, member.joining)

    def _refuse_waiting(self, member: ClassicMember, error: Callable[[], TidelogError]) -> None:
        for ticket in (member.joining, member.syncing):
            if ticket is not None:
                self._waiting.pop(ticket, None)
                self._context.refuse(ticket, error())
        member.joining = member.syncing = None

    def _reply(self, ticket: Ticket, answer: JoinedGroup | SyncedGroup) -> None:
        self._waiting.pop(ticket, None)
        self._context.reply(ticket, answer)

    def _rebalances(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"group {self._context.name} changes its assignment: join it again")

    def _end(self, members: Iterable[ClassicMember], reason: str) -> None:
        """Take out members that did not come in time."""
        gone = list(members)
        for member in gone:
            self._note_end(member, reason)
        self.remove(gone, lambda member: UnknownMember(f"member {member.member_id} {reason}: join again"))

    def _note_end(self, member: ClassicMember, reason: str) -> None:
        client = member.stored.client_id or "unnamed"
        text = f"member {member.member_id} (client {client}) {reason}: its partitions go to others"
        self._context.note(GroupEvent("session_ended", text))

    def _drop(self, member: ClassicMember) -> None:
        self.roster.remove(member)
        self._sessions.drop(member.member_id)

    def _store_stable(self) -> None:
        members = {member.member_id: member.stored for member in self.roster}
        self._record.store_stable(self.generation, self.protocol_type, self.protocol, self.leader, members)

    @property
    def _now_ms(self) -> int:
        return self._context.moment.monotonic_ms


def _replaced() -> RebalanceInProgress:
    return RebalanceInProgress("a later request of the same member has replaced this one")
