"""How the state machine of a group and its driver work together.

The machine (`GroupMachine`) is pure: it has no clock, no store and no tasks. Each call is a *step*, which changes the
state in memory and collects what the driver has to do. The driver (`group_coordinator`) calls `take` after each step:

    changes    keys to store, in this order, in one transaction fenced by the leadership of the shard
    replies    answers to requests, each given once the changes that it rests on are stored
    task       an assignment to compute in a thread; its result comes back by `assigned`

So a crash never takes back a state that a member has seen (inv. 8, 9). All changes are absolute, so the driver
may repeat a transaction whose outcome is unknown.

A request may be answered by a later step (the barriers of a classic group). The driver knows it by its `Ticket`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NewType, Protocol, TypeAlias

from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.errors import TidelogError
from tidelog.wire.groups import GroupRequest

Ticket = NewType("Ticket", int)
"""Names a request between the step that takes it and the step that answers it."""

Change: TypeAlias = PutKey | DeleteKey
"""Keys as in `stored`, without the prefix of the cluster."""


@dataclass(frozen=True, slots=True)
class Moment:
    """`monotonic_ms` is for sessions and timers, `now_ms` (since 1970 UTC) for what is stored and shown."""

    monotonic_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as groups see it. `zones`: the zone of each partition's leader, empty where none is known."""

    topic_id: str
    partitions: int
    zones: Sequence[str] = ()


Topics: TypeAlias = Mapping[str, TopicInfo]
"""All topics by name. A new object whenever anything in it changes."""


@dataclass(frozen=True)
class GroupLimits:
    """The bounds and defaults of all groups, from the settings."""

    session_timeout_ms: int = 45_000
    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 1_800_000
    heartbeat_interval_ms: int = 5_000
    rebalance_timeout_ms: int = 300_000
    members_max: int = 10_000
    instances_max: int = 10_000
    metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 604_800_000
    initial_rebalance_delay_ms: int = 3_000
    """How long a new classic group waits for more members (`group.initial.rebalance.delay.ms`)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the request `ticket`, or its error. `rests_on`: the keys whose changes must be stored before it is
    given; None: all changes of the group up to this step."""

    ticket: Ticket
    answer: Any
    error: TidelogError | None = None
    rests_on: frozenset[str] | None = None


@dataclass(frozen=True)
class AssignmentTask:
    """Compute the target assignment for the group's `epoch`; `input` is the argument of `assignors.assign`."""

    epoch: int
    input: Any


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """Something that an operator wants to know. The driver counts it by `kind` and logs `text`."""

    kind: Literal["session_ended", "rebalanced"]
    text: str


@dataclass
class Outcome:
    """The decisions of a step."""

    changes: list[Change] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    task: AssignmentTask | None = None
    events: list[GroupEvent] = field(default_factory=list)


class GroupMachine(Protocol):
    """One group. `group.Group` implements it; it is made of what the store has of the group, and of the moment when it
    was loaded: every member then has a whole session again."""

    def handle(self, moment: Moment, topics: Topics, ticket: Ticket, request: GroupRequest[Any]) -> None:
        """Take a request; this step or a later one replies."""
        ...

    def withdraw(self, moment: Moment, ticket: Ticket) -> None:
        """The client of a request without a reply is gone: no reply is wanted."""
        ...

    def tick(self, moment: Moment, topics: Topics) -> None:
        """Do what is due: end sessions, barriers and retention; notice that topics have changed."""
        ...

    def extend_sessions(self, moment: Moment) -> None:
        """Give every member and instance a whole session from now on, because this process was paused or the store was
        away."""
        ...

    def assigned(self, moment: Moment, topics: Topics, epoch: int, target: Any) -> None:
        """The result of the `AssignmentTask` of `epoch`; it is ignored if the group has a later one."""
        ...

    def take(self) -> Outcome:
        """The decisions of the steps since the last call."""
        ...

    @property
    def due_ms(self) -> int | None:
        """When to call `tick`, on the monotonic clock; None: never."""
        ...

    @property
    def member_count(self) -> int:
        """How many members there are."""
        ...

    @property
    def idle(self) -> bool:
        """Whether the group may be dropped from memory: it has no members, instances or waiting requests."""
        ...
