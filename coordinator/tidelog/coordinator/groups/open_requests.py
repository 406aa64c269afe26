"""The requests of a coordinator that have no answer yet, by their tickets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidelog.coordinator.groups.group_step import Ticket
from tidelog.storage.errors import TidelogError


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, or an error. `proved`: a write of this coordinator succeeded after the request came, so it was the
    coordinator then; or no proof is needed."""

    answer: Any
    error: TidelogError | None
    proved: bool


class OpenRequests:
    def __init__(self) -> None:
        self._last = 0
        self._open: dict[Ticket, asyncio.Future[Given]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def opened(self) -> Iterator[tuple[Ticket, asyncio.Future[Given]]]:
        """A new request, for the length of the block."""
        self._last += 1
        ticket = Ticket(self._last)
        given: asyncio.Future[Given] = asyncio.get_running_loop().create_future()
        self._open[ticket] = given
        try:
            yield ticket, given
        finally:
            del self._open[ticket]

    def give(self, ticket: Ticket, given: Given) -> None:
        """Answer a request, unless it was answered already or its caller is gone."""
        future = self._open.get(ticket)
        if future is not None and not future.done():
            future.set_result(given)

    def fail(self, ticket: Ticket, error: TidelogError) -> None:
        self.give(ticket, Given(None, error, proved=True))

    def tickets(self) -> tuple[Ticket, ...]:
        return tuple(self._open)
