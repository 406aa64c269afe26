"""One group whose steps a test takes by hand: requests, time, topics, assignments, a coordinator that is replaced."""

from __future__ import annotations

from typing import Any

from tidelog.coordinator.groups.assignors.assign import assign
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_step import (
    AssignmentTask,
    Change,
    GroupLimits,
    Moment,
    Outcome,
    Reply,
    Ticket,
    TopicInfo,
    Topics,
)
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.runtime import SeededEntropy
from tidelog.wire.groups import (
    LEAVE_EPOCH,
    CommitOffsets,
    FetchOffsets,
    GroupRequest,
    Heartbeat,
    HeartbeatAnswer,
    PartitionOffset,
    TopicPartitions,
)

CALENDAR_MS = 1_700_000_000_000


class SteppedGroup:
    """`changes` are those of the last call. An assignment is computed at once unless `computes` is False."""

    def __init__(self, limits: GroupLimits | None = None, **partitions: int) -> None:
        self.limits = limits or GroupLimits()
        self.topics: Topics = {
            name: TopicInfo(f"{name}#1", count) for name, count in (partitions or {"web": 4}).items()
        }
        self.stored: dict[str, bytes] = {}
        self.now_ms = 0
        self.changes: list[Change] = []
        self.task: AssignmentTask | None = None
        self.computes = True
        self.reload()

    def reload(self) -> None:
        """Another coordinator reads what is stored."""
        self.machine = Group("g", self.limits, SeededEntropy(1), dict(self.stored), self.moment)

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, CALENDAR_MS + self.now_ms)

    def call(self, request: GroupRequest[Any]) -> Any:
        """The answer; raises the error."""
        reply = self.reply(request)
        if reply.error is not None:
            raise reply.error
        return reply.answer

    def reply(self, request: GroupRequest[Any]) -> Reply:
        self.changes = []
        self.machine.handle(self.moment, self.topics, Ticket(1), request)
        (reply,) = self._take().replies
        return reply

    def wait(self, ms: int) -> None:
        """Time passes."""
        self.now_ms += ms
        self.changes = []
        self.machine.tick(self.moment, self.topics)
        self._take()

    def set_topic(self, name: str, info: TopicInfo | None) -> None:
        others = {each: known for each, known in self.topics.items() if each != name}
        self.topics = others if info is None else others | {name: info}
        self.wait(0)

    def compute(self) -> None:
        """The assignment that was asked for is there."""
        task, self.task = self.task, None
        assert task is not None
        self.machine.assigned(self.moment, self.topics, task.epoch, assign(task.input))
        self._take()

    def taken(self) -> Outcome:
        """The outcome of a step, before it is stored."""
        return self.machine.take()

    def _take(self) -> Outcome:
        outcome = self.taken()
        self.changes += outcome.changes
        for change in outcome.changes:
            if isinstance(change, PutKey):
                self.stored[change.key] = change.value
            else:
                self.stored.pop(change.key, None)
        self.task = outcome.task or self.task
        if self.task is not None and self.computes:
            self.compute()
        return outcome

    def member(self, name: str, **told: Any) -> SteppedMember:
        """A member that has joined."""
        return SteppedMember(self, name, **({"topics": tuple(self.topics)} | told))

    def commit(self, offset: int, topic: str = "web", partition: int = 0, **by: Any) -> None:
        offsets = (PartitionOffset(topic=topic, partition=partition, offset=offset),)
        self.call(CommitOffsets(offsets=offsets, **by))

    def committed(self) -> dict[tuple[str, int], int]:
        found = self.call(FetchOffsets()).offsets
        return {(each.topic, each.partition): each.offset for each in found}


class SteppedMember:
    """A member that confirms at once what it is told, at its next heartbeat."""

    def __init__(self, group: SteppedGroup, name: str, **told: Any) -> None:
        self.group = group
        self.name = name
        self.told = told
        self.answer: HeartbeatAnswer
        self.join()

    def join(self) -> HeartbeatAnswer:
        self.answer = self.group.call(Heartbeat(member_id=self.name, **self.told))
        return self.answer

    def beat(self, **changed: Any) -> HeartbeatAnswer:
        known = {"member_epoch": self.answer.member_epoch, "owned": self.answer.assignment}
        instance = {"instance_id": self.told.get("instance_id")}
        self.answer = self.group.call(Heartbeat(member_id=self.name, **(instance | known | changed)))
        return self.answer

    def leave(self, epoch: int = LEAVE_EPOCH) -> None:
        self.group.call(Heartbeat(member_id=self.name, member_epoch=epoch, instance_id=self.told.get("instance_id")))

    def commit(self, offset: int, partition: int, **changed: Any) -> None:
        by = {"member_id": self.name, "member_epoch": self.epoch} | changed
        self.group.commit(offset, partition=partition, **by)

    @property
    def epoch(self) -> int:
        return self.answer.member_epoch

    @property
    def numbers(self) -> list[int]:
        """Its partitions of all topics."""
        return [number for part in self.answer.assignment for number in part.partitions]


def web(*numbers: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions("web", numbers),)


def settle(*members: SteppedMember) -> None:
    """Enough heartbeats for every member to have its target."""
    for _ in range(3):
        for member in members:
            member.beat()
