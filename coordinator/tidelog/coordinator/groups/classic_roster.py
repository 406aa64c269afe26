"""The members of a classic group: their ids, their waiting requests, and the protocol that all of them support."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from tidelog.coordinator.groups.consumer_protocol import subscribed_topics
from tidelog.coordinator.groups.group_step import Ticket
from tidelog.wire.classic_groups import ClassicMember as MemberForLeader
from tidelog.wire.classic_groups import ClassicProtocol, JoinGroup


class StoredClassicMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a stable classic group, as it is stored."""

    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    assignment: bytes = b""
    generation: int = 0
    """Of the assignment."""


@dataclass
class ClassicMember:
    """`joining`, `syncing`: its request that waits for a barrier. `synced`: whether it has come to the sync barrier in
    this rebalance. `knows_id`: whether its client can know `member_id`; if not, it can only join anew."""

    member_id: str
    stored: StoredClassicMember
    joining: Ticket | None = None
    syncing: Ticket | None = None
    synced: bool = False
    knows_id: bool = True

    @property
    def instance_id(self) -> str | None:
        return self.stored.instance_id

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str) -> bytes:
        """Its subscription for `protocol`; empty if it does not support it."""
        return next((each.metadata for each in self.stored.protocols if each.name == protocol), b"")

    def assign(self, generation: int, assignment: bytes) -> None:
        self.stored = msgspec.structs.replace(self.stored, generation=generation, assignment=assignment)


def described_by(request: JoinGroup, before: ClassicMember | None = None) -> StoredClassicMember:
    """A member as its `request` describes it, with the assignment that it had `before`."""
    return StoredClassicMember(
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        assignment=before.stored.assignment if before else b"",
        generation=before.stored.generation if before else 0,
    )


class ClassicRoster:
    """Members in the order in which they joined. `pending`: ids that the coordinator has given away and that have not
    joined yet, with their session timeouts. `joined`: the members that have come to the join barrier in this
    rebalance."""

    def __init__(self, stored: Mapping[str, StoredClassicMember]) -> None:
        self.pending: dict[str, int] = {}
        self.joined: set[str] = set()
        self._members: dict[str, ClassicMember] = {}
        self._by_instance: dict[str, str] = {}
        self._supported: Counter[str] = Counter()
        for member_id, member in sorted(stored.items(), key=lambda item: item[1].generation):
            if former := self.of_instance(member.instance_id):
                self.remove(former)  # a crash came between the writes of a static member's two ids
            self.add(ClassicMember(member_id, member))

    def add(self, member: ClassicMember) -> None:
        self.pending.pop(member.member_id, None)
        self._members[member.member_id] = member
        self._supported.update(_names(member.stored))
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        self.joined.discard(member.member_id)
        self._supported.subtract(_names(member.stored))
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]

    def describe(self, member: ClassicMember, stored: StoredClassicMember) -> None:
        """`member` is from now on as `stored` says; it keeps its instance id."""
        self._supported.subtract(_names(member.stored))
        member.stored = msgspec.structs.replace(stored, instance_id=member.instance_id)
        self._supported.update(_names(stored))

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str | None) -> ClassicMember | None:
        """The static member `instance_id`."""
        return self._members.get(self._by_instance.get(instance_id, "")) if instance_id is not None else None

    @property
    def ids_of_instances(self) -> Mapping[str, str]:
        """The member ids of static members."""
        return self._by_instance

    def all_joined(self) -> bool:
        return not self.pending and len(self.joined) == len(self._members)

    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: as long as the most patient member says."""
        return max((member.stored.rebalance_timeout_ms for member in self), default=0)

    def supports(self, protocols: tuple[ClassicProtocol, ...], besides: ClassicMember | None) -> bool:
        """Whether all members, `besides` one, support one of `protocols`."""
        own = _names(besides.stored) if besides is not None else frozenset()
        others = len(self._members) - (besides is not None)
        return any(self._supported[each.name] - (each.name in own) == others for each in protocols)

    def choose_protocol(self) -> str:
        """Each member votes for its first protocol that all members support. The name decides between equals."""
        votes = Counter(
            next(each.name for each in member.stored.protocols if self._supported[each.name] == len(self._members))
            for member in self
        )
        return min(votes, key=lambda name: (-votes[name], name))

    def keeps(self, protocol: str, old: ClassicMember, new: ClassicMember) -> bool:
        """Whether `new`, which has replaced `old`, may read with the assignment of `old` for `protocol`."""
        same_topics = subscribed_topics(old.metadata(protocol)) == subscribed_topics(new.metadata(protocol))
        return same_topics and self.choose_protocol() == protocol

    def for_leader(self, protocol: str) -> tuple[MemberForLeader, ...]:
        """The members with their subscriptions for `protocol`."""
        return tuple(MemberForLeader(m.member_id, m.instance_id, m.metadata(protocol)) for m in self)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)


def _names(member: StoredClassicMember) -> frozenset[str]:
    return frozenset(protocol.name for protocol in member.protocols)
