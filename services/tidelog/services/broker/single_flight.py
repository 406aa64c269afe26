"""One run of a slow read for everybody who wants its result at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    """`run(key, read)` starts `read` unless one for `key` is under way; all who wait share its result or error.
    One of them leaving does not stop it for the others."""

    def __init__(self) -> None:
        self._flights: dict[Key, asyncio.Task[Result]] = {}

    def running(self, key: Key) -> bool:
        return key in self._flights

    async def run(self, key: Key, read: Callable[[], Awaitable[Result]]) -> Result:
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.ensure_future(_awaited(read))
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        return await asyncio.shield(flight)


async def _awaited(read: Callable[[], Awaitable[Result]]) -> Result:
    return await read()
