"""The parts of a call on one partition that decide which broker answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response

from tidelog.services.http.bodies.body_reading import InFlightBody
from tidelog.storage.object_store import Body
from tidelog.wire.paths import partition_target

Append = Callable[[Body, InFlightBody], Awaitable[Response]]
"""Appends the records of a decompressed body on this broker, and answers."""
LocalRead = Callable[[int], Awaitable[Response]]
"""Reads on this broker and answers, given the remaining ms of its wait."""


@dataclass(frozen=True)
class PartitionRef:
    """A partition, by the name of its topic."""

    topic: str
    partition: int

    def target(self, call: str, query: Mapping[str, str]) -> str:
        """Path and query of a call on it."""
        return partition_target(self.topic, self.partition, call, query)


@dataclass(frozen=True)
class Read:
    """A GET. `offset`: the offset that it starts at, None if it gives another position. `stream`: its answer has no
    end."""

    ref: PartitionRef
    call: str
    query: Mapping[str, str]
    offset: int | None = None
    wait_ms: int = 0
    stream: bool = False

    @property
    def waits(self) -> bool:
        return self.stream or self.wait_ms > 0

    def target(self, wait_left_ms: int) -> str:
        query = {**self.query, "wait_ms": str(wait_left_ms)} if self.wait_ms else self.query
        return self.ref.target(self.call, query)
