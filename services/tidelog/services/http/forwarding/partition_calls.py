"""A call on one partition, as far as it matters where it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.responses import Response

from tidelog.services.http.bodies.body_reading import InFlightBody
from tidelog.storage.object_store import Body

Append = Callable[[Body, InFlightBody], Awaitable[Response]]
"""Answers a produce here, given its body without its encoding, and the body's share of the memory for bodies."""
LocalRead = Callable[[int], Awaitable[Response]]
"""Answers a read here, given how many ms of its wait are left."""


@dataclass(frozen=True)
class Place:
    """A partition, as a path names it."""

    topic: str
    partition: int

    def target(self, what: str, query: Mapping[str, str]) -> str:
        """The call `what` on it."""
        path = f"/v1/topics/{quote(self.topic, safe='')}/partitions/{self.partition}/{what}"
        return f"{path}?{urlencode(query)}" if query else path


@dataclass(frozen=True)
class Read:
    """A GET. `offset`: where it begins, if it says so by number; `stream`: its answer has no end."""

    place: Place
    what: str
    query: Mapping[str, str]
    offset: int | None = None
    wait_ms: int = 0
    stream: bool = False

    @property
    def waits(self) -> bool:
        return self.stream or self.wait_ms > 0

    def target(self, wait_left_ms: int) -> str:
        query = {**self.query, "wait_ms": str(wait_left_ms)} if self.wait_ms else self.query
        return self.place.target(self.what, query)
