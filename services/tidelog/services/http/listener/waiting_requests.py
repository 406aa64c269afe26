"""Bounds the requests that hold their connection open: long polls and streams.

Each one ends as soon as its client leaves or the broker drains, so no task outlives its client. At most `count_max`
wait at one time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from tidelog.storage.errors import Overloaded
from tidelog.wire.errors import ClientGone

T = TypeVar("T")
_RETRY_AFTER_S = 5.0


class Draining(Exception):
    """The broker is stopping: end the answer so that the client can continue at another broker."""


class WaitingRequests:
    """The waiting requests of one broker. `drain()` ends all of them, and those that come later."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._drained = asyncio.Event()
        self.count = 0

    @property
    def draining(self) -> bool:
        return self._drained.is_set()

    def drain(self) -> None:
        self._drained.set()

    async def hold(self, receive: Receive, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, unless the client leaves first (`ClientGone`) or the broker drains (`Draining`)."""
        with self._place(work):
            tasks = (
                asyncio.ensure_future(work),
                asyncio.ensure_future(client_left(receive)),
                asyncio.ensure_future(self._drained.wait()),
            )
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end([task for task in tasks if not task.done()])
        working, leaving, _ = tasks
        if not working.cancelled():
            return working.result()
        if leaving.done() and not leaving.cancelled():
            raise ClientGone("the client closed the connection while the request waited")
        raise Draining

    @contextmanager
    def _place(self, work: Coroutine[Any, Any, T]) -> Iterator[None]:
        if self.count >= self._count_max:
            work.close()
            raise Overloaded(
                f"{self._count_max} requests wait already (nine tenths of connections.max): send it again later",
                retry_after_s=_RETRY_AFTER_S,
            )
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


async def client_left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        continue


def has_left(receive: Receive) -> bool:
    """Whether the client has closed the connection already. Call it when the whole body was received.

    `receive` is driven by one step and not awaited, which takes a tenth of the time of a cancelled wait."""
    step: Any = receive()
    try:
        step.send(None)
    except StopIteration as received:
        return bool(received.value["type"] == "http.disconnect")
    step.close()
    return False


async def _end(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
