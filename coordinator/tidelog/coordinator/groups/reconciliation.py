"""Brings the members of a consumer group from what they have to their targets, so that no partition has two owners
(inv. 8).

A partition is *held* by the member that has it in `assigned` or `revoking`. No other member is assigned it before the
holder confirms the revocation or leaves the group. A member that yields need not confirm.

A member's epoch changes exactly when its `assigned` changes, and all epochs come from one counter of the group. So an
epoch of a member stands for one assignment, and a later owner of a partition has a higher epoch than an earlier one.
"""

from __future__ import annotations

from tidelog.coordinator.groups.assignors.assignment import Partition
from tidelog.coordinator.groups.consumer_member import NO_PARTITIONS, ConsumerMember, Partitions, by_topic
from tidelog.coordinator.groups.deadlines import Deadlines
from tidelog.coordinator.groups.members import GroupContext


class Reconciliation:
    """Who holds which partition. It changes members; the caller stores those that changed."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._owners: dict[Partition, str] = {}
        self._epoch = context.head.epoch if context.head else 0
        self.overdue = Deadlines()
        """When members that have not confirmed their revocations are to be fenced."""

    @property
    def epoch(self) -> int:
        """The highest epoch that was given out."""
        return self._epoch

    def next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    def adopt(self, member: ConsumerMember) -> None:
        """`member` was loaded, or has another id now: what it holds is its own."""
        self._epoch = max(self._epoch, member.epoch)
        for partition in member.held:
            self._owners[partition] = member.member_id

    def extend(self, member: ConsumerMember) -> None:
        """Give `member` the whole time to confirm from now on."""
        if member.revoking:
            timeout_ms = member.profile.rebalance_timeout_ms
            self.overdue.set(member.member_id, self._context.moment.monotonic_ms + timeout_ms)

    def confirm(self, member: ConsumerMember, owned: Partitions | None) -> bool:
        """`member` knows of its present epoch, and owns `owned` (None: it does not say). Free the revoked partitions
        that it does not own any more. Return whether anything changed."""
        given_up = member.revoking - owned if owned is not None else NO_PARTITIONS
        changed = bool(given_up or member.taken)
        if member.taken:
            member.taken = NO_PARTITIONS
            member.settled = False
        self.release(member, given_up)
        return changed

    def holder(self, partition: Partition) -> str | None:
        """The id of the member that holds `partition`."""
        return self._owners.get(partition)

    def holds(self, member: ConsumerMember, partition: Partition) -> bool:
        return self._owners.get(partition) == member.member_id

    def release(self, member: ConsumerMember, partitions: Partitions) -> None:
        """`member` does not hold `partitions` any more."""
        if not partitions:
            return
        for partition in partitions:
            del self._owners[partition]
        member.assigned -= partitions
        member.revoking -= partitions
        member.answer = by_topic(member.assigned)
        member.settled = False
        self._keep_topic_ids(member)
        if not member.revoking:
            self.overdue.drop(member.member_id)

    def reconcile(self, member: ConsumerMember) -> bool:
        """Revoke the partitions that are not in the target of `member`, and assign the free ones that are. Return
        whether that began a new epoch."""
        if member.settled:
            return False
        wanted = frozenset(each for each in member.target if each.topic in member.subscription.present)
        renewed = self._renewed(member)
        kept = frozenset(each for each in member.assigned & wanted if each.topic not in renewed)
        free = frozenset(each for each in wanted - kept - member.taken if each not in self._owners)
        free = frozenset(each for each in free if each.topic not in renewed)
        lost = member.assigned - kept
        if lost or free:
            self._move(member, kept | free, lost)
        member.settled = not member.revoking and len(member.assigned) == len(wanted)
        return bool(lost or free)

    def _renewed(self, member: ConsumerMember) -> frozenset[str]:
        """The topics of which `member` holds partitions of a former topic of that name. It has to give them all up
        before it gets partitions of the new one."""
        known = ((topic, self._context.topics.get(topic), topic_id) for topic, topic_id in member.topic_ids.items())
        return frozenset(topic for topic, info, topic_id in known if info is not None and info.topic_id != topic_id)

    def _move(self, member: ConsumerMember, assigned: Partitions, lost: Partitions) -> None:
        """Into a new epoch, with `assigned`."""
        for partition in assigned:
            self._owners[partition] = member.member_id
        member.epoch = self.next_epoch()
        member.assigned = assigned
        member.revoking |= lost
        member.answer = by_topic(assigned)
        self._keep_topic_ids(member)
        if member.yields:
            member.taken |= lost
            self.release(member, lost)
        elif lost and member.member_id not in self.overdue:
            self.extend(member)

    def _keep_topic_ids(self, member: ConsumerMember) -> None:
        topics = {partition.topic for partition in member.held}
        known = member.topic_ids
        member.topic_ids = {topic: known.get(topic) or self._context.topics[topic].topic_id for topic in sorted(topics)}
