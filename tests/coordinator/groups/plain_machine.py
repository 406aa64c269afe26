"""A `GroupMachine` that is simple enough to predict, for tests of its driver.

- A heartbeat keeps a member, which has a session of `SESSION_MS`; the first one is stored and asks for an assignment.
- A commit stores offsets; its reply rests on them alone. FetchOffsets gives back all stored offsets.
- JoinGroup waits until `JOINERS` requests wait.
- DescribeGroup raises, as a defect would.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tidelog.coordinator.groups.group_step import AssignmentTask, Moment, Outcome, Reply, Ticket, Topics
from tidelog.coordinator.groups.stored import StoredHead, StoredOffset, head_key, member_key, offset_key
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.errors import UnknownMember
from tidelog.wire import groups as calls
from tidelog.wire.classic_groups import JoinGroup, SyncedGroup
from tidelog.wire.groups import GroupRequest

SESSION_MS = 10_000
JOINERS = 2


class PlainMachine:
    def __init__(self, name: str, items: Mapping[str, bytes], moment: Moment) -> None:
        self.name = name
        members = (key for key in items if key.startswith(member_key(name, "")))
        self.sessions = {key.rpartition("/")[2]: moment.monotonic_ms + SESSION_MS for key in members}
        self.offsets = {
            int(key.rpartition("/")[2]): msgspec.msgpack.decode(value, type=StoredOffset).offset
            for key, value in items.items()
            if "/offsets/" in key
        }
        self.joining: list[Ticket] = []
        self.withdrawn: list[Ticket] = []
        self.ticks = 0
        self.epoch = 0
        self.targets: list[tuple[int, Any]] = []
        self._outcome = Outcome()

    def handle(self, moment: Moment, topics: Topics, ticket: Ticket, request: GroupRequest[Any]) -> None:
        match request:
            case calls.Heartbeat():
                self._heartbeat(moment, ticket, request)
            case calls.CommitOffsets():
                self._commit(moment, ticket, request)
            case calls.FetchOffsets():
                found = tuple(
                    calls.CommittedOffset(topic="t", partition=partition, offset=offset, committed_at_ms=0)
                    for partition, offset in self.offsets.items()
                )
                keys = frozenset(offset_key(self.name, "t", partition) for partition in self.offsets)
                self._reply(ticket, calls.OffsetsAnswer(found), keys)
            case JoinGroup():
                self._join(ticket)
            case _:
                raise RuntimeError("a defect")

    def withdraw(self, moment: Moment, ticket: Ticket) -> None:
        self.withdrawn.append(ticket)
        self.joining.remove(ticket)

    def tick(self, moment: Moment, topics: Topics) -> None:
        self.ticks += 1
        for member in [each for each, ends_ms in self.sessions.items() if ends_ms <= moment.monotonic_ms]:
            del self.sessions[member]
            self._outcome.changes.append(DeleteKey(member_key(self.name, member)))

    def extend_sessions(self, moment: Moment) -> None:
        self.sessions = dict.fromkeys(self.sessions, moment.monotonic_ms + SESSION_MS)

    def assigned(self, moment: Moment, topics: Topics, epoch: int, target: Any) -> None:
        self.targets.append((epoch, target))

    def take(self) -> Outcome:
        outcome, self._outcome = self._outcome, Outcome()
        return outcome

    @property
    def due_ms(self) -> int | None:
        return min(self.sessions.values(), default=None)

    @property
    def member_count(self) -> int:
        return len(self.sessions)

    @property
    def idle(self) -> bool:
        return not self.sessions and not self.joining

    def _heartbeat(self, moment: Moment, ticket: Ticket, request: calls.Heartbeat) -> None:
        if request.member_epoch == calls.JOIN_EPOCH:
            self.epoch += 1
            self._put(head_key(self.name), StoredHead(kind="consumer", epoch=self.epoch))
            self._put(member_key(self.name, request.member_id), StoredHead())
            self._outcome.task = AssignmentTask(self.epoch, f"{self.name} {self.epoch}")
            self.sessions[request.member_id] = moment.monotonic_ms + SESSION_MS
            self._reply(ticket, calls.HeartbeatAnswer(request.member_id, self.epoch, 5_000, ()))
        elif request.member_id in self.sessions:
            self.sessions[request.member_id] = moment.monotonic_ms + SESSION_MS
            self._reply(ticket, calls.HeartbeatAnswer(request.member_id, self.epoch, 5_000, ()), frozenset())
        else:
            self._outcome.replies.append(Reply(ticket, None, UnknownMember("join again"), frozenset()))

    def _commit(self, moment: Moment, ticket: Ticket, request: calls.CommitOffsets) -> None:
        self._put(head_key(self.name), StoredHead(emptied_at_ms=moment.now_ms))
        for offset in request.offsets:
            self.offsets[offset.partition] = offset.offset
            key = offset_key(self.name, offset.topic, offset.partition)
            self._put(key, StoredOffset("id", offset.offset, moment.now_ms))
        keys = frozenset(offset_key(self.name, offset.topic, offset.partition) for offset in request.offsets)
        self._reply(ticket, calls.Done(), keys)

    def _join(self, ticket: Ticket) -> None:
        self.joining.append(ticket)
        if len(self.joining) == JOINERS:
            for each in self.joining:
                self._reply(each, SyncedGroup("consumer", "range", b""))
            self.joining = []

    def _put(self, key: str, value: msgspec.Struct) -> None:
        self._outcome.changes.append(PutKey(key, msgspec.msgpack.encode(value)))

    def _reply(self, ticket: Ticket, answer: Any, rests_on: frozenset[str] | None = None) -> None:
        self._outcome.replies.append(Reply(ticket, answer, None, rests_on))
