"""Decides when the target assignment of a consumer group is computed anew, of what, and takes over the result.

The group's epoch (`StoredHead.epoch`) grows with each change of members, subscriptions or topics. The target is that of
`StoredHead.assigned_epoch`. While that is the smaller one, an `AssignmentTask` is under way; there is one at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from tidelog.coordinator.groups.assignors.assign import ASSIGNORS, DEFAULT_ASSIGNOR, assign
from tidelog.coordinator.groups.assignors.assignment import Assignment, AssignmentInput, Partition, Subscriber
from tidelog.coordinator.groups.consumer_member import NO_PARTITIONS, ConsumerMember
from tidelog.coordinator.groups.group_step import AssignmentTask, GroupEvent, Topics
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.reconciliation import Reconciliation
from tidelog.coordinator.groups.stored import StoredHead
from tidelog.coordinator.groups.subscriptions import Subscriptions

KIND = "consumer"
AT_ONCE_MAX = 1_000
"""The most partitions of a group of one member whose assignment is computed without a task."""
TASK_PATIENCE_MS = 60_000
"""After this long without its result, an assignment is computed again."""


class TargetAssignment:
    """`members` is the group's own mapping, which its owner changes."""

    def __init__(
        self, context: GroupContext, members: Mapping[str, ConsumerMember], reconciliation: Reconciliation
    ) -> None:
        self._context = context
        self._members = members
        self._reconciliation = reconciliation
        self.subscriptions = Subscriptions()
        self._topics: Topics | None = None
        self._changed = False
        self._asked: frozenset[str] = frozenset()
        """The members in the task under way."""
        self._overdue_ms: int | None = None
        """Until when the result of the task is waited for; None: there is no task."""

    def change(self) -> None:
        """The members, their subscriptions or their preferences change in this step."""
        self._changed = True

    @property
    def pending(self) -> bool:
        """Whether the target does not follow the last change yet."""
        head = self._context.head
        return self._changed or (head is not None and head.assigned_epoch < head.epoch)

    @property
    def due_ms(self) -> int | None:
        return self._overdue_ms

    def notice_topics(self) -> None:
        """Look at the context's topics, if they changed since the last step."""
        if self._topics is self._context.topics:
            return
        loaded = self._topics is None
        self._topics = self._context.topics
        changed = self.subscriptions.notice(self._topics)
        if changed:
            for member in self._members.values():
                member.settled = False
        if self._members and (self._outdated() if loaded else changed):
            self._changed = True

    def assign_sole(self) -> None:
        """Compute the target at once if the group has one member, and few partitions for it: it gets them by the
        answer to its join, as in Kafka."""
        partitions = sum(info.partitions for info in self.subscriptions.topics.values())
        if not self._changed or len(self._members) > 1 or self._overdue_ms is not None or partitions > AT_ONCE_MAX:
            return
        self._changed = False
        head = self._next_head(self._context.head or StoredHead())
        task = self._task(head)
        self.assigned(head.epoch, assign(task))

    def finish_step(self) -> None:
        """Store the group's new epoch, if there is one, and ask for a target, if one is missing."""
        head = self._context.head
        if self._changed:
            self._changed = False
            head = self._next_head(head or StoredHead())
            self._context.set_head(head)
        if self._overdue_ms is not None and self._overdue_ms <= self._context.moment.monotonic_ms:
            self._overdue_ms = None
        if head is not None and head.assigned_epoch < head.epoch and self._members and self._overdue_ms is None:
            self._ask(head)

    def assigned(self, epoch: int, target: Assignment) -> list[ConsumerMember]:
        """Take over the target for the group's `epoch`; return the members whose targets changed.

        If the group has changed since, this target counts until the next one comes: otherwise a storm of joins would
        keep every member waiting. A member that the task did not know keeps its target."""
        self._overdue_ms = None
        head = self._context.head
        if head is None or not self._members or not head.assigned_epoch < epoch <= head.epoch:
            return []
        self._context.set_head(msgspec.structs.replace(head, assigned_epoch=epoch))
        known = [member for member in self._members.values() if member.member_id in self._asked]
        targets = [(member, target.get(member.member_id, NO_PARTITIONS)) for member in known]
        gained = sum(len(wanted - member.target) for member, wanted in targets)
        text = f"epoch {epoch} has {len(known)} members; {gained} partitions get another member"
        self._context.note(GroupEvent("rebalanced", text))
        return [member for member, wanted in targets if _set_target(member, wanted)]

    def _next_head(self, head: StoredHead) -> StoredHead:
        epoch = self._reconciliation.next_epoch()
        if self._members:
            return msgspec.structs.replace(
                head, kind=KIND, protocol_type=KIND, protocol="", leader="", epoch=epoch, emptied_at_ms=0
            )
        now_ms = self._context.moment.now_ms
        return msgspec.structs.replace(head, epoch=epoch, assigned_epoch=epoch, emptied_at_ms=now_ms)

    def _ask(self, head: StoredHead) -> None:
        self._overdue_ms = self._context.moment.monotonic_ms + TASK_PATIENCE_MS
        self._context.ask(AssignmentTask(head.epoch, self._task(head)))

    def _task(self, head: StoredHead) -> AssignmentInput:
        """What the target of `head` is computed of."""
        assignor = self._assignor()
        self._context.set_head(msgspec.structs.replace(head, assignor=assignor))
        subscribers = tuple(self._subscriber(member) for _, member in sorted(self._members.items()))
        self._asked = frozenset(self._members)
        return AssignmentInput(assignor, subscribers, self.subscriptions.topics)

    def _subscriber(self, member: ConsumerMember) -> Subscriber:
        return Subscriber(
            member_id=member.member_id,
            topics=member.subscription.present,
            owned=self._owned(member),
            order=member.profile.instance_id or member.member_id,
            rack=member.profile.rack or "",
        )

    def _owned(self, member: ConsumerMember) -> frozenset[Partition]:
        """The partitions that cost no handover if the member has them: those that it reads, and those of its target
        that no other member reads. A partition of its target that another member reads would have to wait for that
        member, which may be paused."""
        awaited = member.target - member.assigned
        return member.assigned | {each for each in awaited if not self._is_read(each)} if awaited else member.assigned

    def _is_read(self, partition: Partition) -> bool:
        """Whether `partition` is assigned to a member and was not revoked from it."""
        holder = self._reconciliation.holder(partition)
        return holder is not None and partition in self._members[holder].assigned

    def _assignor(self) -> str:
        """The assignor that most members prefer (as in Kafka)."""
        votes = Counter(member.profile.assignor or DEFAULT_ASSIGNOR for member in self._members.values())
        return min(votes, key=lambda name: (-votes[name], ASSIGNORS.index(name)))

    def _outdated(self) -> bool:
        """Whether the loaded targets are not those of the topics as they are. A topic never loses partitions, so a
        smaller count only means that this broker learns of new partitions late."""
        targets = {partition for member in self._members.values() for partition in member.target}
        topics = self.subscriptions.topics
        grown = any(
            Partition(name, number) not in targets for name, info in topics.items() for number in range(info.partitions)
        )
        return grown or any(partition.topic not in topics for partition in targets)


def _set_target(member: ConsumerMember, target: frozenset[Partition]) -> bool:
    if member.target == target:
        return False
    member.target = target
    member.settled = False
    return True
