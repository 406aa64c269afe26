"""The members of a consumer group, by member id and by instance id, and the ends of their sessions."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.coordinator.groups.consumer_member import ConsumerMember
from tidelog.coordinator.groups.deadlines import Deadlines
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.stored import member_key
from tidelog.storage.errors import GroupFull, InstanceInUse, StaleMemberEpoch, UnknownGroup, UnknownMember
from tidelog.wire.groups import Heartbeat

FULL_RETRY_S = 10.0


class MemberRoster:
    """`members` are read by others and changed here only."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.members: dict[str, ConsumerMember] = {}
        self._by_instance: dict[str, str] = {}
        self.sessions = Deadlines()

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self.members.values())

    def __len__(self) -> int:
        return len(self.members)

    def add(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        if member.profile.instance_id is not None:
            self._by_instance[member.profile.instance_id] = member.member_id

    def remove(self, member: ConsumerMember) -> None:
        """Take `member` out, and delete its key."""
        del self.members[member.member_id]
        self.sessions.drop(member.member_id)
        self._context.delete(self.key(member))
        if member.profile.instance_id is not None:
            del self._by_instance[member.profile.instance_id]

    def rename(self, member: ConsumerMember, member_id: str) -> None:
        self.remove(member)
        member.member_id = member_id
        self.add(member)

    def key(self, member: ConsumerMember) -> str:
        return member_key(self._context.name, member.member_id)

    def store(self, member: ConsumerMember) -> None:
        self._context.put(self.key(member), member.stored())

    def renew_session(self, member: ConsumerMember) -> None:
        """Its whole session lies ahead of `member`."""
        end_ms = self._context.moment.monotonic_ms + member.profile.session_timeout_ms
        self.sessions.set(member.member_id, end_ms)

    def of_instance(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self._by_instance.get(instance_id, ""))

    def named_by(self, request: Heartbeat) -> ConsumerMember:
        """The member that `request` names. Raises `InstanceInUse` if another one has its instance id by now."""
        member, static = self.members.get(request.member_id), self.of_instance(request.instance_id)
        if static is not None and static is not member:
            raise self.in_use(request)
        return member or self._absent(request.member_id)

    def in_epoch(self, member_id: str, epoch: int) -> ConsumerMember:
        """The member `member_id`, which must be in `epoch`."""
        member = self.members.get(member_id) or self._absent(member_id)
        if epoch != member.epoch or member.away:
            raise StaleMemberEpoch(f"the member {member_id} is in epoch {member.epoch}, not {epoch}: send a heartbeat")
        return member

    def check_room(self) -> None:
        if len(self.members) >= self._context.limits.members_max:
            raise GroupFull(
                f"the group {self._context.name} has {len(self.members)} members, as many as it may have",
                retry_after_s=FULL_RETRY_S,
            )

    def in_use(self, request: Heartbeat) -> InstanceInUse:
        return InstanceInUse(
            f"another member of the group {self._context.name} has the instance_id {request.instance_id}: give each "
            "consumer its own, or wait until the session of the other one ends"
        )

    def _absent(self, member_id: str) -> ConsumerMember:
        if self._context.head is None:
            raise UnknownGroup(f"there is no group {self._context.name}, so it has no member {member_id}: join again")
        raise UnknownMember(
            f"the group {self._context.name} has no member {member_id}: it left, or its session ended; join again"
        )
