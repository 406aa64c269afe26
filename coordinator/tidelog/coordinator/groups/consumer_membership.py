"""The membership of a consumer group: members that join, come back, begin anew, leave, or change their profile.

A member that begins anew, or that comes back under its instance id, keeps its partitions in a new epoch, which fences
its former process. The caller stores the members that changed.
"""

from __future__ import annotations

import msgspec

from tidelog.coordinator.groups.consumer_member import NO_PARTITIONS, ConsumerMember, StoredMember, new_profile
from tidelog.coordinator.groups.member_roster import MemberRoster
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.reconciliation import Reconciliation
from tidelog.coordinator.groups.target_assignment import TargetAssignment
from tidelog.storage.errors import Invalid
from tidelog.wire.groups import JOIN_EPOCH, Heartbeat


class ConsumerMembership:
    """Changes `roster`, and tells `partitions` and `target` of it."""

    def __init__(
        self, context: GroupContext, roster: MemberRoster, partitions: Reconciliation, target: TargetAssignment
    ) -> None:
        self._context = context
        self._roster = roster
        self._partitions = partitions
        self._target = target

    def restore(self, member_id: str, stored: StoredMember) -> None:
        """The member was loaded from the store."""
        subscription = self._target.subscriptions.add(stored.profile.topics, stored.profile.topic_pattern)
        member = ConsumerMember.restored(member_id, stored, subscription)
        self._roster.add(member)
        self._partitions.adopt(member)

    def joining(self, request: Heartbeat) -> ConsumerMember:
        """The member that `request` joins as: a new one, one that begins anew, or one whose answer was lost."""
        member = self._roster.members.get(request.member_id)
        static = self._roster.of_instance(request.instance_id)
        if static is not None and static is not member:
            if member is not None or not static.away:
                raise self._roster.in_use(request)
            return self._return(static, request)
        if member is None:
            return self._add(request)
        if member.profile.instance_id != request.instance_id:
            raise Invalid("a member cannot change its instance_id: leave first", field="instance_id")
        if member.known_epoch != JOIN_EPOCH or member.away:
            self._restart(member)
        return member

    def leave_for_a_while(self, member: ConsumerMember) -> None:
        """The static `member` will come back. It keeps its partitions until its session ends, or until they
        are assigned to others."""
        if member.profile.instance_id is None:
            raise Invalid("only a member with an instance_id can come back: leave with -1", field="member_epoch")
        member.away = True
        self._partitions.release(member, member.revoking)
        self._partitions.reconcile(member)
        self._roster.renew_session(member)
        self._roster.store(member)

    def remove(self, member: ConsumerMember) -> None:
        """Remove the member: the partitions that it held are free."""
        self._partitions.release(member, member.held)
        self._partitions.overdue.drop(member.member_id)
        self._target.subscriptions.remove(member.subscription)
        self._roster.remove(member)
        self._target.change()

    def tell(self, member: ConsumerMember, request: Heartbeat) -> bool:
        """Take over the profile in the request; return whether it is new."""
        before, after = member.profile, member.profile.told(request)
        if after is before:
            return False
        member.profile = after
        if (before.topics, before.topic_pattern) != (after.topics, after.topic_pattern):
            self._target.subscriptions.remove(member.subscription)
            member.subscription = self._target.subscriptions.add(after.topics, after.topic_pattern)
            member.settled = False
        if before.preferences != after.preferences:
            self._target.change()
        return True

    def _add(self, request: Heartbeat) -> ConsumerMember:
        self._roster.check_room()
        profile = msgspec.structs.replace(new_profile(self._context.limits), instance_id=request.instance_id)
        subscription = self._target.subscriptions.add((), None)
        member_id = request.member_id or self._context.entropy.new_id()
        member = ConsumerMember(member_id, profile, subscription, self._partitions.next_epoch())
        self._roster.add(member)
        self._target.change()
        return member

    def _return(self, member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
        """The static `member`, which was away, is back under another id, with its partitions."""
        self._roster.rename(member, request.member_id or self._context.entropy.new_id())
        self._partitions.adopt(member)
        self._restart(member)
        if self._target.pending:
            self._target.change()  # the target under way is for the former id
        return member

    def _restart(self, member: ConsumerMember) -> None:
        """The member begins anew in a new epoch, which fences its former process. It keeps its partitions."""
        member.epoch = member.began_epoch = self._partitions.next_epoch()
        member.known_epoch = JOIN_EPOCH
        member.away = False
        member.taken = NO_PARTITIONS
