"""A classic group without a driver: requests go in, answers come out, and a crash leaves only what was stored."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable
from typing import Any

import msgspec

from tidelog.coordinator.groups.classic_members import ClassicMembers
from tidelog.coordinator.groups.group_step import GroupEvent, GroupLimits, Moment, Reply, Ticket
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.stored import StoredHead, head_key, names_in, parts_prefix
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import SeededEntropy
from tidelog.wire.classic_groups import (
    ClassicHeartbeat,
    ClassicProtocol,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncedGroup,
    SyncGroup,
)
from tidelog.wire.groups import CommitOffsets, GroupRequest

GROUP = "orders"
LIMITS = GroupLimits(initial_rebalance_delay_ms=3_000, members_max=5)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_MS = LIMITS.initial_rebalance_delay_ms


class ClassicGroup:
    """`stored` has what the store has. `replies`: what was answered, by ticket. `events`: all that were noted."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.limits = limits
        self.stored: dict[str, bytes] = {}
        self.replies: dict[Ticket, Reply] = {}
        self.events: list[GroupEvent] = []
        self.now_ms = 1_000_000
        self._entropy = SeededEntropy(7)
        self._tickets = 0
        self._start()

    def _start(self) -> None:
        head = self.stored.get(head_key(GROUP))
        read = msgspec.msgpack.decode(head, type=StoredHead) if head is not None else None
        self.context = GroupContext(GROUP, self.limits, self._entropy, self._moment(), read)
        prefix = parts_prefix(GROUP)
        items = {names_in(key, prefix)[1]: value for key, value in self.stored.items() if key.startswith(prefix)}
        self.members = ClassicMembers(self.context, items)

    def _moment(self) -> Moment:
        return Moment(self.now_ms, 1_700_000_000_000 + self.now_ms)

    def crash(self) -> None:
        """Another coordinator continues with what is stored; waiting requests get no answer."""
        self._start()

    def send(self, request: GroupRequest[Any]) -> Ticket:
        """Take `request`; its answer may come later."""
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self.context.begin(self._moment(), {})
        try:
            self.members.handle(ticket, request)
        except TidelogError as error:
            self.context.refuse(ticket, error)
        self.apply()
        return ticket

    def call(self, request: GroupRequest[Any]) -> Any:
        """The answer to `request`, which must come at once. Raises its error."""
        return self.answer(self.send(request))

    def answer(self, ticket: Ticket) -> Any:
        reply = self.replies[ticket]
        if reply.error is not None:
            raise reply.error
        return reply.answer

    def withdraw(self, ticket: Ticket) -> None:
        self.context.begin(self._moment(), {})
        self.members.withdraw(ticket)
        self.apply()

    def run(self, ms: int) -> None:
        """Let `ms` pass; tick when due."""
        until_ms = self.now_ms + ms
        while (due_ms := self.members.due_ms) is not None and due_ms <= until_ms:
            self._tick(due_ms)
        self.now_ms = until_ms

    def answers(self, tickets: Iterable[Ticket]) -> list[Any]:
        """The answers to `tickets`; time passes until they are there."""
        wanted = list(tickets)
        while not all(ticket in self.replies for ticket in wanted):
            due_ms = self.members.due_ms
            assert due_ms is not None, "the requests wait for ever"
            self._tick(due_ms)
        return [self.answer(ticket) for ticket in wanted]

    def _tick(self, due_ms: int) -> None:
        self.now_ms = max(self.now_ms, due_ms)
        self.context.begin(self._moment(), {})
        self.members.tick()
        self.apply()

    def apply(self) -> None:
        outcome = self.context.take()
        self.events += outcome.events
        for change in outcome.changes:
            if isinstance(change, PutKey):
                self.stored[change.key] = change.value
            else:
                self.stored.pop(change.key, None)
        for reply in outcome.replies:
            assert reply.ticket not in self.replies, "a request is answered once"
            self.replies[reply.ticket] = reply

    @property
    def state(self) -> str:
        return self.members.describe().state

    def stable(self, *names: str, instance: bool = False) -> dict[str, JoinedGroup]:
        """A stable group of new members; the first one leads. What each one joined with, by name."""
        tickets = {name: self.send(join(instance_id=name if instance else None, client_id=name)) for name in names}
        joined: dict[str, JoinedGroup] = dict(zip(tickets, self.answers(tickets.values()), strict=True))
        self.sync(joined.values())
        return joined

    def sync(self, joined: Iterable[JoinedGroup]) -> dict[str, SyncedGroup]:
        """All of `joined` sync; the leader last. By member id."""
        ordered = sorted(joined, key=lambda each: each.leader == each.member_id)
        tickets = {each.member_id: self.send(sync(each)) for each in ordered}
        return {member_id: self.answer(ticket) for member_id, ticket in tickets.items()}


def subscription(*topics: str, userdata: bytes = b"") -> bytes:
    """In Kafka's encoding."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", len(userdata)) + userdata


def assignment(topic: str, *partitions: int) -> bytes:
    name = struct.pack(">h", len(topic)) + topic.encode()
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 1, 1) + name + numbers + struct.pack(">i", 0)


def join(
    member_id: str = "",
    *,
    protocols: tuple[str, ...] = ("range", "roundrobin"),
    topics: tuple[str, ...] = ("web",),
    userdata: bytes = b"",
    metadata: bytes | None = None,
    **given: Any,
) -> JoinGroup:
    metadata = subscription(*topics, userdata=userdata) if metadata is None else metadata
    described = tuple(ClassicProtocol(name, metadata) for name in protocols)
    defaults: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": described,
    }
    return JoinGroup(member_id=member_id, **(defaults | given))


def again(joined: JoinedGroup, **given: Any) -> JoinGroup:
    return join(joined.member_id, **given)


def sync(joined: JoinedGroup) -> SyncGroup:
    """The leader gives each member its number and the generation."""
    texts = [f"{joined.generation}/{each.member_id}".encode() for each in joined.members]
    pairs = zip(joined.members, texts, strict=True)
    return SyncGroup(
        generation=joined.generation,
        member_id=joined.member_id,
        protocol_type=joined.protocol_type,
        protocol=joined.protocol,
        assignments=tuple(MemberAssignment(each.member_id, text) for each, text in pairs),
    )


def beat(joined: JoinedGroup, **given: Any) -> ClassicHeartbeat:
    return ClassicHeartbeat(**({"generation": joined.generation, "member_id": joined.member_id} | given))


def leave(*joined: JoinedGroup) -> LeaveGroup:
    return LeaveGroup(members=tuple(LeavingMember(each.member_id) for each in joined))


def commit(joined: JoinedGroup, member_id: str | None = None, generation: int | None = None) -> CommitOffsets:
    return CommitOffsets(
        offsets=(),
        member_id=joined.member_id if member_id is None else member_id,
        member_epoch=joined.generation if generation is None else generation,
    )


def limits(**changes: int) -> GroupLimits:
    return dataclasses.replace(LIMITS, **changes)


def noted(group: ClassicGroup, kind: str) -> list[str]:
    return [event.text for event in group.events if event.kind == kind]
