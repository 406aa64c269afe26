"""The values of a history: the operations of clients and their answers, independent of how a broker works.

The name of a value is the client that made it and its number: ``(client, n)``. Each client counts its values from 0. A
**run** is `count` values of one client, number `first` and following, at `offset` and following. Times are seconds of
one monotonic clock that all clients share. `history_lines` defines the form on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """What a client knows about an operation. FAIL: the answer says that nothing was taken."""

    OK = "ok"
    FAIL = "fail"
    CONFLICT = "conflict"
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN = "unknown"


class Acks(Enum):
    """The promise of an acknowledgement. Only ALL promises that the record stays."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


@dataclass(frozen=True, slots=True)
class Run:
    """`count` values of `client` from number `first` on, at `offset` and following."""

    offset: int
    client: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a part of an append, according to its answer."""

    partition: int
    base_offset: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Something between two times."""

    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Timed):
    """A request and its outcome. `code` is the service's error code."""

    outcome: Outcome
    code: str = ""


@dataclass(frozen=True, slots=True)
class Append(Answered):
    """One attempt to append; a retry of the same values is another attempt.

    `partition` None: the service chose. `keys` is empty if the values have none. `sequenced`: sent so that the service
    can tell retries from new values. A CONFLICT says that `expected_offset` was not the next offset, and gives the next
    one in `next_offset`.
    """

    client: str
    topic: str
    partition: int | None
    first: int
    count: int
    placed: Sequence[Place] = ()
    keys: Sequence[str] = ()
    sequenced: bool = False
    expected_offset: int | None = None
    next_offset: int | None = None
    acks: Acks = Acks.ALL


@dataclass(frozen=True, slots=True)
class Read(Answered):
    """One step of a session that reads a partition continuously. OK without runs: the partition ended at `offset`.
    `log_start_offset`: from an OUT_OF_RANGE."""

    session: str
    topic: str
    partition: int
    offset: int
    next_offset: int
    runs: Sequence[Run] = ()
    log_start_offset: int = 0


@dataclass(frozen=True, slots=True)
class EndQuery(Answered):
    """A client asked for the end of a partition and got `offset` (None if the call failed)."""

    session: str
    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Trim(Answered):
    """A client asked to delete the records below `before_offset`."""

    client: str
    topic: str
    partition: int
    before_offset: int


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Heartbeat(Answered):
    """A group's member said which partitions it `owned`, and was told its `epoch` and which it may read (`assigned`).
    From the answer on it believes that it owns these, until it names them no more, or `session_s` after the last
    request that was answered. A poll is a heartbeat, too. CONFLICT: the member was fenced."""

    member: str
    group: str
    owned: Sequence[GroupPlace]
    assigned: Sequence[GroupPlace]
    epoch: int
    session_s: float


@dataclass(frozen=True, slots=True)
class GroupOffset(Timed):
    """An offset of a partition between a member and its group."""

    member: str
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class GroupCommit(GroupOffset):
    """A member committed `offset` in `epoch`. CONFLICT: the group refused the member or its epoch."""

    epoch: int
    outcome: Outcome
    code: str = ""


@dataclass(frozen=True, slots=True)
class GroupStart(GroupOffset):
    """A member was told to begin at `offset`: the group's committed one, or 0 if there is none."""


@dataclass(frozen=True, slots=True)
class GroupRead(GroupOffset):
    """A member was given the records from `offset` up to `next_offset`. `polled`: by a call that checks its `epoch`."""

    next_offset: int
    epoch: int
    polled: bool = False


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Promises that a topic's settings remove. `compacted`: only the newest record of a key stays. `expires`: the
    oldest records may be deleted. `grows`: partitions are added, so a key may move."""

    topic: str
    compacted: bool = False
    expires: bool = False
    grows: bool = False


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """The harness changed the service between `start` and `end`."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class FinalLog:
    """The contents of a partition at the end."""

    topic: str
    partition: int
    log_start_offset: int
    runs: Sequence[Run]


@dataclass(frozen=True)
class History:
    """All operations of a run."""

    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    ends: list[EndQuery] = field(default_factory=list)
    trims: list[Trim] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    group_commits: list[GroupCommit] = field(default_factory=list)
    group_starts: list[GroupStart] = field(default_factory=list)
    group_reads: list[GroupRead] = field(default_factory=list)
    topics: list[TopicRules] = field(default_factory=list)
    faults: list[FaultWindow] = field(default_factory=list)
    finals: list[FinalLog] = field(default_factory=list)
