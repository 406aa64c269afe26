"""The stored state of a classic group.

    head       the number of the last generation (`epoch`), and of the one whose assignments are stored
               (`assigned_epoch`)
    members    of the stable generation `assigned_epoch`, with their assignments; none if the group is empty

A generation's number is stored before a member learns it, its assignments before a member learns its own.

A store applies the changes of a group together. As a check, the head has the number of members, and each member the
generation of its assignment. If they do not fit together (the store was altered from outside), the group is not
`whole`: all members have to join again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.coordinator.groups.classic_roster import StoredClassicMember
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.stored import StoredHead, member_key
from tidelog.storage.errors import Corrupt


class ClassicRecord:
    """`items`: the stored members by id."""

    def __init__(self, context: GroupContext, items: Mapping[str, bytes]) -> None:
        self._context = context
        self._members = {member_id: _decoded(context.name, member_id, value) for member_id, value in items.items()}
        expected = (self.head.members, {self.head.assigned_epoch} if self._members else set())
        found = (len(self._members), {member.generation for member in self._members.values()})
        self.whole = found == expected and (not self._members or self.head.leader in self._members)
        """Whether the members that were loaded are those of one generation."""

    @property
    def head(self) -> StoredHead:
        return self._context.head or StoredHead()

    @property
    def members(self) -> Mapping[str, StoredClassicMember]:
        return self._members

    def store_generation(self, generation: int, ids_of_instances: Mapping[str, str]) -> None:
        """The number of a generation that has no assignments yet; the stored members keep theirs. A static member that
        has another id by now is stored under this one: a new coordinator would fence it otherwise."""
        ids = {old: ids_of_instances.get(member.instance_id or "", old) for old, member in self._members.items()}
        emptied_at_ms = 0 if self._members else self.head.emptied_at_ms or self._context.moment.now_ms
        leader = ids.get(self.head.leader, self.head.leader)
        members = {ids[old]: member for old, member in self._members.items()}
        self._delete_others(members)
        self._put(members)
        self._set_head(epoch=generation, leader=leader, emptied_at_ms=emptied_at_ms)

    def store_stable(
        self, generation: int, protocol_type: str, protocol: str, leader: str, members: dict[str, StoredClassicMember]
    ) -> None:
        """The group is stable in `generation`, with these members."""
        stable = {"assigned_epoch": generation, "protocol_type": protocol_type, "protocol": protocol, "leader": leader}
        self._put(members)
        self._delete_others(members)
        self._set_head(**stable, members=len(members), emptied_at_ms=0)

    def store_empty(self, generation: int) -> None:
        """The group has no members."""
        now_ms = self._context.moment.now_ms
        self._delete_others({})
        self._set_head(epoch=generation, protocol="", leader="", members=0, emptied_at_ms=now_ms)

    def _set_head(self, **changes: object) -> None:
        self._context.set_head(msgspec.structs.replace(self.head, kind="classic", assignor="", **changes))

    def _put(self, members: Mapping[str, StoredClassicMember]) -> None:
        for member_id, member in members.items():
            if self._members.get(member_id) != member:
                self._context.put(member_key(self._context.name, member_id), member)
                self._members[member_id] = member

    def _delete_others(self, members: Mapping[str, StoredClassicMember]) -> None:
        for member_id in sorted(self._members.keys() - members.keys()):
            self._context.delete(member_key(self._context.name, member_id))
            del self._members[member_id]


def _decoded(group: str, member_id: str, value: bytes) -> StoredClassicMember:
    try:
        return msgspec.msgpack.decode(value, type=StoredClassicMember)
    except msgspec.MsgspecError as error:
        raise Corrupt(member_key(group, member_id), f"no member of a classic group: {error}") from None
