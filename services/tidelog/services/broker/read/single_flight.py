"""One run of a slow read for everybody who wants its result at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    """`run(key, read)` starts `read` unless one for `key` is under way; all who wait share its result or error.
    One of them leaving does not stop it for the others.

    A read that has ended is never shared: a caller that asks again and again until a result is new enough must get a
    new read each time, and must wait for it. Else it could run for ever between the end of a read and its callbacks.
    """

    def __init__(self) -> None:
        self._flights: dict[Key, asyncio.Task[Result]] = {}

    def running(self, key: Key) -> bool:
        flight = self._flights.get(key)
        return flight is not None and not flight.done()

    async def run(self, key: Key, read: Callable[[], Awaitable[Result]]) -> Result:
        flight = self._flights.get(key)
        if flight is None or flight.done():
            flight = self._flights[key] = asyncio.ensure_future(_awaited(read))
            flight.add_done_callback(lambda ended: self._forget(key, ended))
        return await asyncio.shield(flight)

    def _forget(self, key: Key, ended: asyncio.Task[Result]) -> None:
        """Another read may have begun since."""
        if self._flights.get(key) is ended:
            del self._flights[key]


async def _awaited(read: Callable[[], Awaitable[Result]]) -> Result:
    return await read()
