"""A member of a consumer group, as a pure state machine: the client's half of KIP-848.

`Membership` decides which heartbeat is sent next and when, and which partitions the program gains and loses. It does no
I/O and reads no clock. The heartbeat thread sends `next_heartbeat` and reports the outcome by `on_answer` or
`on_error`. The program's own thread, in `poll`, applies `next_change`: callbacks, commits, then `apply`.

    JOINING --answer--> MEMBER --fenced, unknown--> JOINING       (its partitions are lost)
       ^                  |----- no poll for too long --> IDLE    (it leaves; the next poll joins again)
       |__________________|__________________________________|
                          |----- close --> LEAVING --> LEFT

- A partition is read only between `apply(assigned)` and `apply(revoked)` of it. The coordinator gives a partition to
  another member only after the heartbeat that confirms the revocation, so the program's commit comes first.
- The id of a member is its own choice, so a join whose answer was lost can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelog.client.consumed import TopicPartition, flattened, grouped
from tidelog.storage.errors import (
    Fenced,
    MemberFenced,
    Overloaded,
    StaleMemberEpoch,
    TidelogError,
    Unavailable,
    UnknownMember,
)
from tidelog.wire.groups import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, Heartbeat, HeartbeatAnswer

RETRY_S = 0.5
"""After a heartbeat that failed: when the next one is sent."""
NONE: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class Subscription:
    """The subscription of a member, and its timeouts; None: the coordinator's defaults."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rack: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    client_id: str = ""


@dataclass(frozen=True)
class Change:
    """Partitions that the program loses and gains, in this order. `lost`: others may read them already, so nothing can
    be committed for them."""

    lost: frozenset[TopicPartition] = NONE
    revoked: frozenset[TopicPartition] = NONE
    assigned: frozenset[TopicPartition] = NONE


class Phase(Enum):
    """Where a member is in its life; see the head of this file."""

    JOINING = "joining"
    MEMBER = "member"
    IDLE = "idle"
    LEAVING = "leaving"
    LEFT = "left"


class Membership:
    """One member. `max_poll_interval_s`: the longest time between two polls. Times are of a monotonic clock."""

    def __init__(self, member_id: str, wanted: Subscription, max_poll_interval_s: float, now: float) -> None:
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.phase = Phase.JOINING
        self.owned: frozenset[TopicPartition] = NONE
        self.failure: TidelogError | None = None
        self._wanted = wanted
        self._max_poll_interval_s = max_poll_interval_s
        self._polled_at = now
        self._due_at = now
        self._told_wanted: Subscription | None = None
        self._told_owned: frozenset[TopicPartition] | None = None
        self._target: frozenset[TopicPartition] = NONE
        self._lost: frozenset[TopicPartition] = NONE
        self._sent: Heartbeat | None = None
        self._sent_wanted: Subscription | None = None

    @property
    def target(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator lets this member have now."""
        return self._target

    @property
    def takes_away(self) -> bool:
        """Whether the program has partitions that it must give up, or has lost."""
        return bool(self._lost) or not self.owned <= self._target

    @property
    def due_at(self) -> float | None:
        """When `next_heartbeat` must be called; None: only after a change."""
        if self.failure is not None or self.phase in (Phase.IDLE, Phase.LEFT):
            return None
        return min(self._due_at, self._polled_at + self._max_poll_interval_s)

    def next_heartbeat(self, now: float) -> Heartbeat | None:
        """The heartbeat to send now; None if none is due. Nothing is due while an earlier one is under way."""
        due_at = self.due_at
        if due_at is None or due_at > now or self._sent is not None:
            return None
        if self.phase is Phase.MEMBER and now >= self._polled_at + self._max_poll_interval_s:
            self._go_idle()
            return self._leaving()
        self._sent = self._leaving() if self.phase is Phase.LEAVING else self._staying()
        return self._sent

    def on_answer(self, answer: HeartbeatAnswer, now: float) -> None:
        """The heartbeat of `next_heartbeat` was answered."""
        sent, self._sent = self._sent, None
        if sent is None or self.phase is Phase.IDLE:
            return
        if self.phase is Phase.LEAVING:
            if sent.member_epoch < 0:
                self.phase = Phase.LEFT
            return
        self.phase, self.epoch = Phase.MEMBER, answer.member_epoch
        self._told_wanted = self._sent_wanted
        self._told_owned = self._told_owned if sent.owned is None else flattened(sent.owned)
        self._target = flattened(answer.assignment)
        self._due_at = now if self._told_owned != self.owned else now + answer.heartbeat_interval_ms / 1_000

    def on_error(self, error: TidelogError, now: float) -> None:
        """The heartbeat failed. An error that no repetition mends becomes `failure`."""
        self._sent = None
        if self.phase in (Phase.IDLE, Phase.LEFT):
            return
        if self.phase is Phase.LEAVING:
            self.phase = Phase.LEFT
        elif isinstance(error, UnknownMember | MemberFenced | StaleMemberEpoch):
            self._rejoin(now + (RETRY_S if self.phase is Phase.JOINING else 0.0))
        elif isinstance(error, Unavailable | Fenced):
            self._due_at = now + max(RETRY_S, error.retry_after_s if isinstance(error, Overloaded) else 0.0)
        else:
            self.failure = error

    def polled(self, now: float) -> None:
        """The program polls, so it lives. After a pause that was too long, the member joins again."""
        self._polled_at = now
        if self.phase is Phase.IDLE:
            self._rejoin(now)

    def worked(self, now: float) -> None:
        """The program works on records that it was given, which counts as a poll. Only a poll joins again."""
        if self.phase is not Phase.IDLE:
            self._polled_at = now

    def fenced(self, now: float) -> None:
        """A commit showed that the coordinator has taken the member out."""
        if self.phase is Phase.MEMBER:
            self._rejoin(now)

    def hurry(self, now: float) -> None:
        """Send the next heartbeat at once."""
        self._due_at = min(self._due_at, now)

    def resubscribe(self, wanted: Subscription, now: float) -> None:
        """Tell the coordinator a new subscription."""
        self._wanted = wanted
        self.hurry(now)

    def next_change(self) -> Change | None:
        """The next change for the program: partitions to drop, give up or take. None: no change."""
        if self._lost:
            return Change(lost=self._lost)
        if self.phase is not Phase.MEMBER or self.owned == self._target:
            return None
        revoked = self.owned - self._target
        return Change(revoked=revoked) if revoked else Change(assigned=self._target - self.owned)

    def apply(self, change: Change, now: float) -> None:
        """The program has carried out `change`. The next heartbeat confirms it."""
        self._lost -= change.lost
        self.owned = (self.owned - change.revoked) | (change.assigned & self._target)
        if self._told_owned != self.owned:
            self.hurry(now)

    def leave(self, now: float) -> bool:
        """Begin to leave, with a last heartbeat. False: the member is in no group."""
        never_in = self.phase is Phase.JOINING and self._sent is None
        if never_in or self.failure is not None or self.phase in (Phase.IDLE, Phase.LEFT):
            self.phase = Phase.LEFT
            return False
        self.phase, self.owned = Phase.LEAVING, NONE
        self.hurry(now)
        return True

    def _rejoin(self, due_at: float) -> None:
        self._lost |= self.owned
        self.owned, self._target, self._told_owned, self._told_wanted = NONE, NONE, None, None
        self.phase, self.epoch, self._due_at = Phase.JOINING, JOIN_EPOCH, due_at

    def _go_idle(self) -> None:
        self._lost |= self.owned
        self.owned, self._target, self.phase = NONE, NONE, Phase.IDLE

    def _leaving(self) -> Heartbeat:
        static = self._wanted.instance_id is not None
        epoch = STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH
        return Heartbeat(member_id=self.member_id, member_epoch=epoch, instance_id=self._wanted.instance_id)

    def _staying(self) -> Heartbeat:
        wanted = self._sent_wanted = self._wanted
        owned = None if self._told_owned == self.owned else grouped(self.owned)
        if self._told_wanted == wanted:
            return Heartbeat(
                member_id=self.member_id, member_epoch=self.epoch, instance_id=wanted.instance_id, owned=owned
            )
        return Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=wanted.instance_id,
            topics=None if wanted.pattern is not None and not wanted.topics else wanted.topics,
            topic_pattern=wanted.pattern,
            assignor=wanted.assignor,
            owned=owned,
            session_timeout_ms=wanted.session_timeout_ms,
            rebalance_timeout_ms=wanted.rebalance_timeout_ms,
            rack=wanted.rack,
            client_id=wanted.client_id,
        )
