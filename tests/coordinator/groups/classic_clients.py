"""Clients of a classic group in virtual time, a coordinator that crashes, and what each client must be able to rely on.

The coordinator's changes are stored after a while, in order; its answers go out after the changes that they rest on. A
crash loses both, but for the first of the changes. Answers get lost on their way, and clients give up waiting.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.coordinator.groups.classic_group import ClassicGroup, join

from tidelog.coordinator.groups.group_step import Change, GroupLimits, Outcome, Reply, Ticket
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.errors import (
    InstanceInUse,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from tidelog.wire.classic_groups import (
    ClassicHeartbeat,
    JoinedGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncedGroup,
    SyncGroup,
)
from tidelog.wire.groups import GroupRequest

SESSION_MS = 10_000
REBALANCE_MS = 20_000
BEAT_MS = 3_000
PATIENCE_MS = REBALANCE_MS + 5_000
SETTLE_MS = 8 * (REBALANCE_MS + SESSION_MS)
"""Without faults, everybody has settled after this time."""


class SlowStore(ClassicGroup):
    """A `ClassicGroup` whose changes are stored, and whose answers are given, when `store_one` is called."""

    def __init__(self) -> None:
        self.waiting: deque[Outcome] = deque()
        super().__init__(GroupLimits(initial_rebalance_delay_ms=1_000))

    def apply(self) -> None:
        outcome = self.context.take()
        if outcome.changes or outcome.replies:
            self.waiting.append(outcome)

    def store_one(self) -> list[Reply]:
        """Store the oldest changes, and give the answers that rest on them."""
        outcome = self.waiting.popleft()
        self._store(outcome.changes)
        return outcome.replies

    def _store(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, PutKey):
                self.stored[change.key] = change.value
            else:
                self.stored.pop(change.key, None)

    def crash_after(self, changes: int) -> None:
        """Only so many of the waiting changes are stored."""
        self._store([change for outcome in self.waiting for change in outcome.changes][:changes])
        self.crash()

    def crash(self) -> None:
        self.waiting.clear()
        super().crash()


@dataclass
class Client:
    """One consumer. `wants`: what it does next. `ticket`: the request that it waits for."""

    name: str
    static: bool
    careful: bool
    member_id: str = ""
    generation: int = -1
    wants: str = "join"
    next_ms: int = 0
    ticket: Ticket | None = None
    joined: JoinedGroup | None = None
    assignment: bytes | None = None
    gave_up: bool = False

    @property
    def instance_id(self) -> str | None:
        return self.name if self.static else None

    def restart(self) -> None:
        """The process dies, and starts again without knowing its member id."""
        self.member_id, self.wants, self.ticket, self.assignment = "", "join", None, None


@dataclass
class ClassicWorld:
    """See the head of the module. `faults`: how likely each is, at each opportunity."""

    seed: int
    faults: float = 0.03
    group: SlowStore = field(default_factory=SlowStore)
    clients: dict[str, Client] = field(default_factory=dict)
    given: dict[int, set[bytes]] = field(default_factory=dict)
    """By generation: the leader's assignments that members got."""
    led_by: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By generation: the members, as its leader was told."""
    crashes: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._waiting: dict[Ticket, tuple[Client, int]] = {}
        self._syncs = 0
        for number in range(6):
            self.add(f"c{number}")

    def add(self, name: str) -> None:
        self.clients[name] = Client(name, static=self._random.random() < 0.4, careful=self._random.random() < 0.7)

    def run(self, ms: int) -> None:
        until_ms = self.group.now_ms + ms
        while self.group.now_ms < until_ms:
            self.group.run(self._random.randint(1, 400))
            self._inject()
            self._store()
            for client in list(self.clients.values()):
                self._act(client)

    def settled(self) -> bool:
        """Everybody reads with the assignment of one generation, and nobody else is in the group."""
        members = {member.member_id for member in self.group.members.describe().members}
        return (
            self.group.state == "Stable"
            and members == {client.member_id for client in self.clients.values()}
            and all(client.wants == "beat" and client.assignment is not None for client in self.clients.values())
            and len({client.generation for client in self.clients.values()}) == 1
        )

    def _inject(self) -> None:
        if self._happens(self.faults / 2):
            self.crashes += 1
            self.group.crash_after(self._random.choice((0, 0, 1, 2, 3, 5, 8)))
        for client in list(self.clients.values()):
            if self._happens(self.faults / 4):
                self._drop_request(client, withdrawn=self._happens(0.5))
                client.restart()
        if self._happens(self.faults / 2) and len(self.clients) > 2:
            gone = self.clients.pop(self._random.choice(sorted(self.clients)))
            self._drop_request(gone, withdrawn=True)
            if self._happens(0.5):
                self.group.send(LeaveGroup(members=(LeavingMember(gone.member_id, gone.instance_id),)))
        if self._happens(self.faults / 2) and len(self.clients) < 9:
            self.add(f"c{self._random.randint(10, 99)}")

    def _store(self) -> None:
        while self.group.waiting and not self._happens(0.3):
            for reply in self.group.store_one():
                client, _ = self._waiting.pop(reply.ticket, (None, 0))
                if client is None or client.ticket != reply.ticket or self._happens(self.faults):
                    continue  # nobody waits any more, or the answer gets lost
                client.ticket = None
                self._take(client, reply)

    def _act(self, client: Client) -> None:
        now_ms = self.group.now_ms
        if client.ticket is not None:
            if now_ms - self._waiting.get(client.ticket, (client, client.next_ms))[1] > PATIENCE_MS:
                self._drop_request(client, withdrawn=self._happens(0.5))
            return
        if now_ms < client.next_ms or client.gave_up:
            return
        client.next_ms = now_ms + (BEAT_MS if client.wants == "beat" else 0)
        self._send(client, _REQUESTS[client.wants](self, client))

    def _send(self, client: Client, request: GroupRequest[Any]) -> None:
        client.next_ms = max(client.next_ms, self.group.now_ms)
        before = self.group._tickets
        client.ticket = Ticket(before + 1)
        self._waiting[client.ticket] = (client, self.group.now_ms)
        assert self.group.send(request) == client.ticket

    def _drop_request(self, client: Client, *, withdrawn: bool) -> None:
        """The client waits no longer; it sends the request again. `withdrawn`: the coordinator notices."""
        if client.ticket is not None and withdrawn:
            self.group.withdraw(client.ticket)
        client.ticket = None

    def _take(self, client: Client, reply: Reply) -> None:
        match reply.error or reply.answer:
            case MemberIdRequired(member_id=member_id):
                client.member_id = member_id
            case UnknownMember():
                client.member_id, client.wants, client.assignment = "", "join", None
            case MemberFenced() | RebalanceInProgress():
                client.wants, client.assignment = "join", None
            case JoinedGroup() as joined:
                client.member_id, client.generation, client.joined = joined.member_id, joined.generation, joined
                client.wants = "sync"
                self._check_members(joined)
            case SyncedGroup(assignment=assignment):
                self._got(client, assignment)
            case InstanceInUse():
                client.gave_up = True

    def _check_members(self, joined: JoinedGroup) -> None:
        """The members of a generation are the same whenever a leader is told."""
        if joined.members:
            told = tuple(sorted(each.instance_id or each.member_id for each in joined.members))
            assert self.led_by.setdefault(joined.generation, told) == told

    def _got(self, client: Client, assignment: bytes) -> None:
        """The assignment is of the client's generation, and all assignments of a generation are of one sync."""
        client.wants, client.assignment = "beat", assignment
        if assignment:
            generation, one_sync, name = assignment.split(b"/")
            assert int(generation) == client.generation
            assert name.decode() == (client.name if client.static else client.member_id)
            self.given.setdefault(client.generation, set()).add(one_sync)
            assert len(self.given[client.generation]) == 1

    def join_request(self, client: Client) -> GroupRequest[Any]:
        return join(
            client.member_id,
            instance_id=client.instance_id,
            known_member_required=client.careful,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def sync_request(self, client: Client) -> GroupRequest[Any]:
        assert client.joined is not None
        self._syncs += 1
        leads = client.joined.leader == client.member_id and not client.joined.skip_assignment
        return SyncGroup(
            generation=client.generation,
            member_id=client.member_id,
            instance_id=client.instance_id,
            assignments=tuple(
                MemberAssignment(
                    each.member_id,
                    f"{client.generation}/{self._syncs}/{each.instance_id or each.member_id}".encode(),
                )
                for each in client.joined.members
                if leads
            ),
        )

    def beat_request(self, client: Client) -> GroupRequest[Any]:
        return ClassicHeartbeat(
            generation=client.generation, member_id=client.member_id, instance_id=client.instance_id
        )

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance


_REQUESTS: dict[str, Callable[[ClassicWorld, Client], GroupRequest[Any]]] = {
    "join": ClassicWorld.join_request,
    "sync": ClassicWorld.sync_request,
    "beat": ClassicWorld.beat_request,
}
