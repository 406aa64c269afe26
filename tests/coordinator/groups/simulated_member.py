"""A consumer of the simulated group that behaves as a correct client does: it stops reading what is taken from it,
takes its time for that, commits, confirms, and joins again when it is fenced. It can crash, pause, leave, hang, and
come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.coordinator.groups.assignors.assignment import Partition
from tidelog.coordinator.groups.group_step import Topics
from tidelog.storage.errors import InstanceInUse, MemberFenced, TidelogError, UnknownMember
from tidelog.wire.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    CommitOffsets,
    Heartbeat,
    HeartbeatAnswer,
    PartitionOffset,
    TopicPartitions,
)

if TYPE_CHECKING:
    from tests.coordinator.groups.simulated_group import SimulatedGroup

SESSION_MS = 3_000
REBALANCE_MS = 8_000
"""Longer than any consumer that does not hang needs."""
PATIENCE_MS = 600
SUBSCRIPTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("web",), ""),
    (("web", "app"), ""),
    (("app",), ""),
    ((), "web.*"),
)

Answered: TypeAlias = Callable[[Any, TidelogError | None, Topics], None]
"""Takes an answer, or an error, and the topics as the coordinator saw them."""


class Broken(AssertionError):
    """The group broke a promise."""


class SimulatedMember:
    """Each of its lives has another member id."""

    def __init__(self, group: SimulatedGroup, number: int) -> None:
        self._group = group
        self._random = group.random
        self.label = f"m{number}"
        self._lives = 0
        self._instance = f"i{number}" if self._random.random() < 0.3 else None
        self._yields = self._random.random() < 0.15
        self._subscription = self._random.choice(SUBSCRIPTIONS)
        self.alive = False
        self._reset()

    def _reset(self) -> None:
        self._lives += 1
        self.member_id = f"{self.label}-{self._lives}"
        self._epoch = JOIN_EPOCH
        self.owned: dict[Partition, str] = {}
        """The partitions that it reads, with the ids of their topics."""
        self._giving_up: set[Partition] = set()
        self._commits: list[CommitOffsets] = []
        self._paused_until_ms = 0
        self.hangs = False
        self._joined_again = False
        """Whether a repeated join arrived late: the coordinator cannot tell it from a process that was restarted."""
        self._request = 0
        self._arrived_ms = self._group.now_ms
        self._lapsed_ms: int | None = None
        """Since when its session may be over."""

    def start(self, delay_ms: int) -> None:
        self.alive = True
        life = self._lives
        self._group.at(delay_ms, lambda: self._beat(life))

    def trouble(self) -> None:
        if self.alive:
            pause, leave = self._pause, self._leave
            self._random.choice((self._crash, pause, pause, leave, self._hang, self._resubscribe))()
        else:
            self._reset()
            self.start(self._random.randint(0, 500))

    def _crash(self) -> None:
        self.alive = False

    def _pause(self) -> None:
        self._paused_until_ms = self._group.now_ms + self._random.choice((400, 1_500, 2_500, 5_000))

    def _hang(self) -> None:
        """It sends heartbeats, and never gives a partition up. One member at a time, or the calm is too short."""
        self.hangs = self.hangs or not any(each.hangs and each.alive for each in self._group.members)

    def _leave(self) -> None:
        self.alive = False
        epoch = LEAVE_EPOCH if self._instance is None or self._random.random() < 0.5 else STATIC_LEAVE_EPOCH
        request = Heartbeat(member_id=self.member_id, instance_id=self._instance, member_epoch=epoch)
        self._group.call_once(request, lambda _answer, _error, _topics: None)

    def _resubscribe(self) -> None:
        self._subscription = self._random.choice(SUBSCRIPTIONS)

    def subscribes(self, topic: str) -> bool:
        names, pattern = self._subscription
        return topic in names or (bool(pattern) and topic.startswith("web"))

    def heartbeat(self) -> Heartbeat:
        names, pattern = self._subscription
        return Heartbeat(
            member_id=self.member_id,
            member_epoch=self._epoch,
            instance_id=self._instance,
            topics=names,
            topic_pattern=pattern,
            owned=tuple(TopicPartitions(topic, (number,)) for topic, number in sorted(self._held())),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            yields=self._yields,
        )

    def _held(self) -> set[Partition]:
        return {*self.owned, *self._giving_up}

    def _beat(self, life: int) -> None:
        if life != self._lives or not self.alive or self._waits(lambda: self._beat(life)):
            return
        self._request += 1
        number, sent_ms = self._request, self._group.now_ms
        self._group.call(
            self.heartbeat(), lambda answer, error, topics: self._answered(life, number, sent_ms, answer, error, topics)
        )
        self._group.at(PATIENCE_MS, lambda: self._beat(life) if number == self._request else None)

    def _waits(self, event: Callable[[], None]) -> bool:
        """Whether the consumer is paused; then `event` comes after the pause."""
        pause_ms = self._paused_until_ms - self._group.now_ms
        if pause_ms > 0:
            self._group.at(pause_ms, event)
        return pause_ms > 0

    def _answered(
        self, life: int, number: int, sent_ms: int, answer: Any, error: TidelogError | None, topics: Topics
    ) -> None:
        if life != self._lives or number != self._request or not self.alive:
            return
        if self._waits(lambda: self._answered(life, number, sent_ms, answer, error, topics)):
            return
        self._request += 1
        self._note_lapse()
        if error is None:
            if self._lapsed_ms is not None and sent_ms > self._lapsed_ms and not self.hangs:
                self._lapsed_ms = None
            self._follow(answer, topics)
        else:
            self._refused(error)
        self._commit()
        interval_ms = answer.heartbeat_interval_ms if error is None else 200
        self._group.at(self._random.randint(interval_ms // 2, interval_ms), lambda: self._beat(life))

    def _follow(self, answer: HeartbeatAnswer, topics: Topics) -> None:
        assigned = {Partition(part.topic, number) for part in answer.assignment for number in part.partitions}
        gained = frozenset(assigned - set(self.owned))
        if gained and answer.member_epoch == self._epoch:
            raise Broken(f"{self.label} was given {gained} without a new epoch")
        self._epoch = answer.member_epoch
        for partition in sorted(set(self.owned) - assigned):
            self._give_up(partition)
        self.owned |= {each: topics[each.topic].topic_id if each.topic in topics else "" for each in sorted(gained)}
        self._group.told(self, self._epoch, gained)

    def _give_up(self, partition: Partition) -> None:
        del self.owned[partition]
        if not self.hangs:
            delay_ms = self._random.choice((0, 0, 50, 900))
            if delay_ms:
                self._giving_up.add(partition)
                self._group.at(delay_ms, lambda: self._giving_up.discard(partition))
        else:
            self._giving_up.add(partition)

    def _refused(self, error: TidelogError) -> None:
        if isinstance(error, InstanceInUse):
            return
        if not isinstance(error, UnknownMember | MemberFenced):
            raise Broken(f"{self.label} was refused: {error!r}")
        if self._lapsed_ms is None and not self._joined_again:
            raise Broken(f"{self.label} was fenced within its session: {error!r}")
        self.owned.clear()
        self._giving_up.clear()
        self.hangs = False
        self._joined_again = False
        self._epoch = JOIN_EPOCH

    def _commit(self) -> None:
        if self._commits and self._group.chance(0.3):
            self._commit_again()
        held = sorted(self._held())
        if not held or self._epoch == JOIN_EPOCH or self._random.random() < 0.5:
            return
        offsets = tuple(
            PartitionOffset(topic=topic, partition=number, offset=self._group.next_offset()) for topic, number in held
        )
        request = CommitOffsets(member_id=self.member_id, member_epoch=self._epoch, offsets=offsets)
        self._group.call_once(request, lambda _answer, _error, _topics: None)
        self._commits.append(request)

    def _commit_again(self) -> None:
        """A commit of an earlier epoch, which was held up, arrives now."""
        old = self._random.choice(self._commits)
        if old.member_epoch < self._epoch:
            self._group.call_once(old, lambda _answer, error, _topics: self._check_refused(old, error))

    def _check_refused(self, old: CommitOffsets, error: TidelogError | None) -> None:
        if error is None:
            raise Broken(f"{old} was accepted from an old epoch")

    def believes(self) -> set[Partition]:
        """What it reads, as far as the group answers for it: not after its session, and not if it yields."""
        self._note_lapse()
        return set() if not self.alive or self._yields or self._lapsed_ms is not None else self._held()

    def accepted(self, request: Heartbeat) -> None:
        """The coordinator takes a heartbeat."""
        if request.member_id == self.member_id:
            self._note_lapse()
            self._arrived_ms = self._group.now_ms
            self._joined_again |= request.member_epoch == JOIN_EPOCH != self._epoch

    def _note_lapse(self) -> None:
        silent_ms = self._group.now_ms - self._arrived_ms
        if self._lapsed_ms is None and (silent_ms >= SESSION_MS or self.hangs):
            self._lapsed_ms = self._group.now_ms
