"""One consumer group in virtual time: its machine, a coordinator that dies, a store that is slow, a network that loses,
delays and repeats, and consumers (`simulated_member`). All from one seed.

The world raises `Broken` if

- two consumers believe that they own a partition (inv. 8), or a later owner has no later epoch
- a commit is accepted after one of a later epoch, or from a member while another one owns the partition
- an acknowledged commit is lost with a coordinator
- a consumer is fenced although its requests arrived within its session
- in the calm at the end the consumers do not come to own all partitions, once each
- a reloaded coordinator changes anything for a consumer
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.coordinator.groups.commit_judge import CommitJudge
from tests.coordinator.groups.simulated_member import Answered, Broken, SimulatedMember

from tidelog.coordinator.groups.assignors.assign import assign
from tidelog.coordinator.groups.assignors.assignment import Partition
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_step import Change, GroupLimits, Moment, Reply, Ticket, TopicInfo, Topics
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.runtime import SeededEntropy
from tidelog.wire.groups import CommitOffsets, GroupRequest, Heartbeat

NAME = "g"
CALENDAR_MS = 1_700_000_000_000
TROUBLE_MS = 10_000
CALM_MS = 16_000
MEMBERS_MAX = 6
TOPICS = ("web", "app", "web-2")
LIMITS = GroupLimits(heartbeat_interval_ms=900)


@dataclass
class _Step:
    """Changes that are not stored, and replies that wait."""

    changes: tuple[Change, ...]
    replies: list[Reply]


class SimulatedGroup:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self._entropy = SeededEntropy(seed)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.topics: Topics = {"web": TopicInfo("web#0", self.random.randint(1, 6))}
        self._trouble = True
        self._store: dict[str, bytes] = {}
        self._steps: list[_Step] = []
        self._waiting: dict[int, tuple[GroupRequest[Any], Answered, Topics]] = {}
        self._tickets = 0
        self._tick_at_ms: int | None = None
        self._owners: dict[Partition, tuple[int, str]] = {}
        self._commits = CommitJudge(NAME)
        self.machine = self._loaded()
        self.members = [SimulatedMember(self, number) for number in range(self.random.randint(1, 4))]

    def run(self) -> None:
        for member in self.members:
            member.start(self.random.randint(0, 2_000))
        self.at(self.random.randint(200, 1_500), self._disturb)
        self._run_until(TROUBLE_MS)
        self._trouble = False
        self._run_until(TROUBLE_MS + CALM_MS)
        self._check_converged()
        self._check_reload()

    def at(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, event))

    def chance(self, probability: float) -> bool:
        """Whether something bad happens; never while it is calm."""
        return self._trouble and self.random.random() < probability

    def next_offset(self) -> int:
        self._count += 1
        return self._count

    def _run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()

    def call(self, request: GroupRequest[Any], answered: Answered) -> None:
        """Send `request`. It or its answer may be lost or late, and the request may arrive twice."""
        self.call_once(request, answered)
        if self.chance(0.08):
            self.at(self.random.randint(100, 4_000), lambda: self._arrive(request, _nobody))

    def call_once(self, request: GroupRequest[Any], answered: Answered) -> None:
        if not self.chance(0.05):
            self.at(self._delay_ms(), lambda: self._arrive(request, answered))

    def _delay_ms(self) -> int:
        return self.random.randint(200, 2_500) if self.chance(0.05) else self.random.randint(1, 30)

    def _arrive(self, request: GroupRequest[Any], answered: Answered) -> None:
        self._tickets += 1
        self._waiting[self._tickets] = request, answered, self.topics
        self.machine.handle(self._moment(), self.topics, Ticket(self._tickets), request)
        self._after_step()

    def _moment(self) -> Moment:
        return Moment(self.now_ms, CALENDAR_MS + self.now_ms)

    def _loaded(self) -> Group:
        return Group(NAME, LIMITS, self._entropy, dict(self._store), self._moment())

    def _after_step(self) -> None:
        outcome = self.machine.take()
        for reply in outcome.replies:
            self._decided(reply)
        if outcome.task is not None:
            task, machine = outcome.task, self.machine
            self.at(self.random.randint(1, 700), lambda: self._assign(task.epoch, task.input, machine))
        if outcome.changes or outcome.replies:
            step = _Step(tuple(outcome.changes), list(outcome.replies))
            self._steps.append(step)
            self._answer_what_is_stored()
            self.at(self.random.randint(0, 600) if self.chance(0.2) else 1, lambda: self._write(step))
        self._schedule_tick()

    def _assign(self, epoch: int, task: Any, machine: Group) -> None:
        if machine is self.machine:
            machine.assigned(self._moment(), self.topics, epoch, assign(task))
            self._after_step()

    def _schedule_tick(self) -> None:
        due_ms = self.machine.due_ms
        if due_ms is not None and (self._tick_at_ms is None or due_ms < self._tick_at_ms):
            self._tick_at_ms = max(due_ms, self.now_ms)
            self.at(self._tick_at_ms - self.now_ms, self._tick)

    def _tick(self) -> None:
        self._tick_at_ms = None
        self.machine.tick(self._moment(), self.topics)
        self._after_step()

    def _write(self, step: _Step) -> None:
        """Store all changes up to `step`."""
        if step in self._steps:
            self._apply(self._steps.index(step) + 1)
            self._answer_what_is_stored()

    def _apply(self, steps: int) -> None:
        for step in self._steps[:steps]:
            for change in step.changes:
                if isinstance(change, PutKey):
                    self._store[change.key] = change.value
                else:
                    self._store.pop(change.key, None)
            step.changes = ()

    def _answer_what_is_stored(self) -> None:
        unstored: set[str] = set()
        given: list[Reply] = []
        for step in self._steps:
            unstored.update(change.key for change in step.changes)
            ready = [each for each in step.replies if not _rests_on(each, unstored)]
            step.replies = [each for each in step.replies if each not in ready]
            given += ready
        self._steps = [step for step in self._steps if step.changes or step.replies]
        for reply in given:
            self._send_answer(reply)

    def _send_answer(self, reply: Reply) -> None:
        request, answered, topics = self._waiting.pop(reply.ticket)
        if isinstance(request, CommitOffsets) and reply.error is None:
            self._commits.acknowledged(request, topics)
        if not self.chance(0.08):
            self.at(self._delay_ms(), lambda: answered(reply.answer, reply.error, topics))

    def _die(self) -> None:
        """Some of the last steps are stored, and nobody gets an answer. Another coordinator reads the store; it may
        know of new partitions that the former one did not know."""
        if self.chance(0.2):
            self._grow()
        self._apply(self.random.randint(0, len(self._steps)))
        self._steps.clear()
        self._waiting.clear()
        self.machine = self._loaded()
        self._schedule_tick()
        self._commits.check(self._store, self.topics)

    def _disturb(self) -> None:
        if not self._trouble:
            return
        members = (self._trouble_member,) * 4
        self.random.choice((self._die, self._die, self._grow, self._create, self._delete, self._recreate, *members))()
        self.at(self.random.randint(100, 1_500), self._disturb)

    def _grow(self) -> None:
        name = self.random.choice(sorted(self.topics))
        info = self.topics[name]
        self._set_topic(name, TopicInfo(info.topic_id, info.partitions + self.random.randint(1, 2)))

    def _create(self) -> None:
        name = self.random.choice(TOPICS)
        if name not in self.topics:
            self._set_topic(name, TopicInfo(f"{name}#{self.now_ms}", self.random.randint(1, 4)))

    def _delete(self) -> None:
        if len(self.topics) > 1:
            self._set_topic(self.random.choice(sorted(self.topics)), None)

    def _recreate(self) -> None:
        name = self.random.choice(sorted(self.topics))
        self._set_topic(name, TopicInfo(f"{name}#{self.now_ms}", self.topics[name].partitions))

    def _set_topic(self, name: str, info: TopicInfo | None) -> None:
        others = {each: known for each, known in self.topics.items() if each != name}
        self.topics = others if info is None else others | {name: info}
        self.at(self.random.randint(0, 300), self._tick)

    def _trouble_member(self) -> None:
        if self.random.random() < 0.3 and len(self.members) < MEMBERS_MAX:
            self.members.append(SimulatedMember(self, len(self.members)))
            self.members[-1].start(0)
        else:
            self.random.choice(self.members).trouble()

    def told(self, member: SimulatedMember, epoch: int, gained: frozenset[Partition]) -> None:
        """`member` begins to read `gained`."""
        for partition in gained & member.believes():
            last_epoch, owner = self._owners.get(partition, (0, ""))
            if owner != member.member_id and epoch <= last_epoch:
                raise Broken(f"{partition} went from {owner} in epoch {last_epoch} to {member.label} in {epoch}")
            self._owners[partition] = epoch, member.member_id
        owners: dict[Partition, str] = {}
        for each in self.members:
            for partition in each.believes():
                if owners.setdefault(partition, each.label) != each.label:
                    raise Broken(f"{partition} belongs to {owners[partition]} and to {each.label}")

    def _decided(self, reply: Reply) -> None:
        """The machine accepts or refuses a request."""
        request, _, topics = self._waiting[reply.ticket]
        if isinstance(request, Heartbeat) and reply.error is None:
            for member in self.members:
                member.accepted(request)
        if not isinstance(request, CommitOffsets) or reply.error is not None:
            return
        self._commits.accepted(request, topics)
        partitions = {Partition(each.topic, each.partition) for each in request.offsets}
        for member in self.members:
            if member.member_id != request.member_id and (owned := partitions & member.believes()):
                raise Broken(f"{member.label} owns {owned}, and {request.member_id} committed it")

    def _check_converged(self) -> None:
        living = [member for member in self.members if member.alive]
        wanted = {
            (Partition(name, number), info.topic_id)
            for name, info in self.topics.items()
            if any(member.subscribes(name) for member in living)
            for number in range(info.partitions)
        }
        owned = [each for member in living for each in member.owned.items()]
        if sorted(owned) != sorted(wanted):
            raise Broken(f"the members own {sorted(owned)}, not {sorted(wanted)}")
        if any(not member.subscribes(each.topic) for member in living for each in member.owned):
            raise Broken("a member owns a partition to which it does not subscribe")

    def _check_reload(self) -> None:
        self._apply(len(self._steps))
        self.machine = self._loaded()
        for member in (each for each in self.members if each.alive):
            self.machine.handle(self._moment(), self.topics, Ticket(0), member.heartbeat())
            outcome = self.machine.take()
            if outcome.changes or outcome.task or outcome.replies[0].error:
                raise Broken(f"a reloaded coordinator changes something for {member.label}: {outcome}")
        self._commits.check(self._store, self.topics)


def _rests_on(reply: Reply, unstored: set[str]) -> bool:
    return bool(unstored if reply.rests_on is None else unstored & reply.rests_on)


def _nobody(_answer: Any, _error: Any, _topics: Topics) -> None:
    """The client does not wait for this answer."""
