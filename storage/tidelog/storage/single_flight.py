"""Run a slow read once for all callers that need its result at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    """`run(key, read)` starts `read` unless one for `key` is under way. All callers that wait get its result or error.
    A caller that is cancelled does not stop it for the others.

    A read that has ended is never shared. A caller that repeats `run` until a result is new enough must get a new read
    each time and must wait for it; otherwise it could loop forever between the end of a read and its callbacks.
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
        if self._flights.get(key) is ended:
            del self._flights[key]  # no later read has begun since
        if not ended.cancelled():
            ended.exception()  # asyncio need not report it: those who still wait get it


async def _awaited(read: Callable[[], Awaitable[Result]]) -> Result:
    return await read()
