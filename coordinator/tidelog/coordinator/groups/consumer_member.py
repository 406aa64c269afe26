"""A member of a consumer group.

MemberProfile     what its heartbeats say of it
ConsumerMember    the profile, and what the coordinator has decided for it
StoredMember      both as stored
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from tidelog.coordinator.groups.assignors.assign import ASSIGNORS
from tidelog.coordinator.groups.assignors.assignment import Partition
from tidelog.coordinator.groups.group_step import GroupLimits
from tidelog.coordinator.groups.subscriptions import Subscription, check_pattern
from tidelog.storage.errors import Invalid
from tidelog.wire.groups import JOIN_EPOCH, STATIC_LEAVE_EPOCH, GroupMemberDescription, Heartbeat, TopicPartitions

NAME_CHARS_MAX = 255
"""For ids, client ids, hosts and racks."""
TOPIC_CHARS_MAX = 249
SUBSCRIBED_TOPICS_MAX = 10_000
PATTERN_CHARS_MAX = 1_000

Partitions = frozenset[Partition]
NO_PARTITIONS: Partitions = frozenset()


class MemberProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a member that its heartbeats set. The names are those of `Heartbeat`."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assignor: str | None = None
    rack: str | None = None
    yields: bool = False
    client_id: str = ""
    client_host: str = ""

    def told(self, request: Heartbeat) -> MemberProfile:
        """The profile after `request`, in which None means: as before."""
        changes = {name: getattr(request, name) for name in _OPTIONAL if getattr(request, name) is not None}
        if request.member_epoch == JOIN_EPOCH:
            changes |= {"client_id": request.client_id, "client_host": request.client_host}
        if "topics" in changes:
            changes["topics"] = tuple(sorted(set(changes["topics"])))
        if request.topic_pattern == "":
            changes["topic_pattern"] = None
        if all(getattr(self, name) == value for name, value in changes.items()):
            return self
        return msgspec.structs.replace(self, **changes)

    @property
    def preferences(self) -> tuple[object, ...]:
        """The part that the target assignment depends on."""
        return self.topics, self.topic_pattern, self.assignor, self.rack


_OPTIONAL = ("topics", "topic_pattern", "assignor", "rack", "yields", "session_timeout_ms", "rebalance_timeout_ms")


class StoredMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member in the store. `known_epoch`: the last epoch that a request of the member named, at some time not later
    than the last write. `began_epoch`: as in `ConsumerMember`. `topic_ids`: of the topics in `assigned` and
    `revoking`."""

    profile: MemberProfile
    epoch: int
    known_epoch: int = JOIN_EPOCH
    began_epoch: int = 0
    assigned: tuple[TopicPartitions, ...] = ()
    revoking: tuple[TopicPartitions, ...] = ()
    taken: tuple[TopicPartitions, ...] = ()
    target: tuple[TopicPartitions, ...] = ()
    topic_ids: dict[str, str] = {}
    away: bool = False


@dataclass(eq=False)
class ConsumerMember:
    """A member as the coordinator has it.

    - `epoch` changes whenever `assigned` does. `known_epoch`: of the member's last request. `began_epoch`: the
      first one after its last join; a request of an earlier one comes from its former process.
    - `assigned`: the partitions that the last answer assigned to the member. `target`: its target assignment.
    - `revoking`: revoked partitions whose revocation it has not confirmed. No other member is assigned them.
    - `taken`: partitions that were revoked without its confirmation, and it may not know that yet. Others may have
      them; the member is assigned them again only after it has learned of the revocation.
    - `away`: a static member that will come back.
    - `settled`: there is nothing to reconcile until the target, the subscription or the topics change."""

    member_id: str
    profile: MemberProfile
    subscription: Subscription
    epoch: int
    known_epoch: int = JOIN_EPOCH
    began_epoch: int = 0
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    taken: Partitions = NO_PARTITIONS
    target: Partitions = NO_PARTITIONS
    topic_ids: dict[str, str] = field(default_factory=dict)
    away: bool = False
    settled: bool = False
    answer: tuple[TopicPartitions, ...] = ()
    """`assigned` as heartbeats answer it."""

    @property
    def held(self) -> Partitions:
        """The partitions that the member may believe it owns."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    @property
    def yields(self) -> bool:
        """Whether its partitions may be taken without its confirmation."""
        return self.away or self.profile.yields

    @property
    def informed(self) -> bool:
        """Whether a heartbeat in its epoch would tell it nothing new."""
        return self.settled and not self.taken and not self.away

    @property
    def reconciled(self) -> bool:
        """Whether it has its target."""
        return self.settled or (self.assigned == self.target and not self.revoking)

    def stored(self) -> StoredMember:
        return StoredMember(
            profile=self.profile,
            epoch=self.epoch,
            known_epoch=self.known_epoch,
            began_epoch=self.began_epoch,
            assigned=self.answer,
            revoking=by_topic(self.revoking),
            taken=by_topic(self.taken),
            target=by_topic(self.target),
            topic_ids=self.topic_ids,
            away=self.away,
        )

    @classmethod
    def restored(cls, member_id: str, stored: StoredMember, subscription: Subscription) -> ConsumerMember:
        return cls(
            member_id=member_id,
            profile=stored.profile,
            subscription=subscription,
            epoch=stored.epoch,
            known_epoch=stored.known_epoch,
            began_epoch=stored.began_epoch,
            assigned=partition_set(stored.assigned),
            revoking=partition_set(stored.revoking),
            taken=partition_set(stored.taken),
            target=partition_set(stored.target),
            topic_ids=dict(stored.topic_ids),
            away=stored.away,
            answer=stored.assigned,
        )


def new_profile(limits: GroupLimits) -> MemberProfile:
    """The profile of a member that says nothing of itself."""
    return MemberProfile(session_timeout_ms=limits.session_timeout_ms, rebalance_timeout_ms=limits.rebalance_timeout_ms)


def check_heartbeat(request: Heartbeat, limits: GroupLimits) -> None:
    """Raise `Invalid` for a request that is wrong by itself."""
    for name in ("member_id", "instance_id", "rack", "client_id", "client_host"):
        if len(getattr(request, name) or "") > NAME_CHARS_MAX:
            raise Invalid(f"{name} is longer than {NAME_CHARS_MAX} characters", field=name)
    if request.instance_id == "":
        raise Invalid("instance_id is empty: leave it out, or give a name", field="instance_id")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise Invalid(
            f"there is no assignor {request.assignor}: choose one of {', '.join(ASSIGNORS)}", field="assignor"
        )
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        raise Invalid(f"member_epoch is {STATIC_LEAVE_EPOCH} or more, not {request.member_epoch}", field="member_epoch")
    _check_subscription(request)
    _check_timeouts(request, limits)
    if request.member_epoch == JOIN_EPOCH and request.owned:
        raise Invalid("a member that joins owns nothing: leave owned out, or empty", field="owned")
    if request.member_epoch == JOIN_EPOCH and request.topics is None and not request.topic_pattern:
        raise Invalid("a member that joins subscribes: give topics or topic_pattern", field="topics")


def _check_subscription(request: Heartbeat) -> None:
    if request.topics is not None and len(request.topics) > SUBSCRIBED_TOPICS_MAX:
        raise Invalid(f"topics has more than {SUBSCRIBED_TOPICS_MAX} names: use topic_pattern", field="topics")
    if any(not 0 < len(topic) <= TOPIC_CHARS_MAX for topic in request.topics or ()):
        raise Invalid(f"a topic's name has 1 to {TOPIC_CHARS_MAX} characters", field="topics")
    if request.topic_pattern:
        if len(request.topic_pattern) > PATTERN_CHARS_MAX:
            raise Invalid(f"topic_pattern is longer than {PATTERN_CHARS_MAX} characters", field="topic_pattern")
        check_pattern(request.topic_pattern)


def _check_timeouts(request: Heartbeat, limits: GroupLimits) -> None:
    low, high = limits.session_timeout_ms_min, limits.session_timeout_ms_max
    if request.session_timeout_ms is not None and not low <= request.session_timeout_ms <= high:
        raise Invalid(f"session_timeout_ms must be between {low} and {high}", field="session_timeout_ms")
    if request.rebalance_timeout_ms is not None and not 0 < request.rebalance_timeout_ms <= high:
        raise Invalid(f"rebalance_timeout_ms must be between 1 and {high}", field="rebalance_timeout_ms")


def partition_set(parts: Iterable[TopicPartitions]) -> Partitions:
    return frozenset(Partition(part.topic, number) for part in parts for number in part.partitions)


def by_topic(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """`partitions` in order."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return tuple(TopicPartitions(topic, tuple(found)) for topic, found in numbers.items())


def described(member: ConsumerMember) -> GroupMemberDescription:
    """`member` as the group's description shows it."""
    profile = member.profile
    return GroupMemberDescription(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        rack=profile.rack,
        member_epoch=STATIC_LEAVE_EPOCH if member.away else member.epoch,
        topics=profile.topics,
        topic_pattern=profile.topic_pattern,
        assignment=member.answer,
        target=by_topic(member.target),
    )
