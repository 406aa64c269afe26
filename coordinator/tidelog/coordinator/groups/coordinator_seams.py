"""The bounds and the surroundings of a `GroupCoordinator`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_step import GroupMachine, Moment, Topics
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.group_writes import WriteBounds
from tidelog.storage.runtime import Runtime

NewMachine = Callable[[str, Mapping[str, bytes], Moment], GroupMachine]
"""Makes the machine of a group of what the store has of it, loaded at a moment."""


@dataclass(frozen=True)
class CoordinatorBounds:
    """`groups_max`: groups in memory. `requests_max`: requests without an answer. `idle_s`: a group without
    calls for this long is dropped from memory, if it is idle."""

    writes: WriteBounds = field(default_factory=WriteBounds)
    groups_max: int = 20_000
    requests_max: int = 20_000
    idle_s: float = 60.0


@dataclass(frozen=True)
class CoordinatorSeams:
    """`assign` computes an assignment off the event loop. `prove` returns once it is proved that this broker led the
    shard at a moment of the call; it raises `NotLeader`, `LeaderUnknown`, `Unavailable`. `reachable`: whether the store
    answers, as far as is known."""

    store: GroupStore
    new_machine: NewMachine
    assign: Callable[[Any], Awaitable[Any]]
    topics: Callable[[], Topics]
    prove: Callable[[], Awaitable[None]]
    reachable: Callable[[], bool]
    runtime: Runtime
    counts: GroupCounts

    def moment(self) -> Moment:
        """Now."""
        clock = self.runtime.clock
        return Moment(int(clock.monotonic() * 1000), clock.now_ms())
