"""Send a request a second time if it takes unusually long, and take the first answer.

A connection that hangs then costs a shard a second or so, and not the time limit of a request (`stores.s3_limits`).
Most requests are answered long before `after_s` and are sent once: a commit is one PUT.

Which requests
--------------
- `get`, `head` and `list` change nothing.
- `create` succeeds once. If the first request took effect, the second one is told `Conflict`, by its own object. The
  same happens to a request that `stores.retrying` sends again, so every caller of `create` compares ids after a
  `Conflict`. Bodies above `HEDGED_BYTES_MAX` are sent once.
- `put` and `delete` are sent once: the slower of two could undo what another process wrote in between.

The answer that counts is the first that says something: a value, or any error but `Unavailable`. After `Unavailable`
the other request decides. The request that is not waited for any more is cancelled; it may still take effect, as any
request that was given up may.

How many
--------
A store that is slow as a whole must not be asked twice for everything. A second request spends one of at most
`HEDGES_SAVED_MAX` that were saved up, and each request saves `HEDGES_A_REQUEST`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectInfo, ObjectStore, StoredObject

HEDGED_BYTES_MAX = 16 << 20
UNKNOWN_BYTES = 8 << 20
"""Taken for the size of an object that is read whole."""
BYTES_PER_S = 4 << 20
"""A body is given `after_s`, and a second more for each so many bytes."""
HEDGES_SAVED_MAX = 10
HEDGES_A_REQUEST = 0.05

T = TypeVar("T")
Attempt = Callable[[], Coroutine[Any, Any, T]]


class HedgingObjectStore:
    """`inner`, asked a second time after `after_s`. `hedges`: how often that was."""

    def __init__(self, inner: ObjectStore, *, after_s: float) -> None:
        assert after_s > 0, after_s
        self._inner = inner
        self._after_s = after_s
        self._saved = float(HEDGES_SAVED_MAX)
        self.hedges = 0

    @property
    def inner(self) -> ObjectStore:
        return self._inner

    @property
    def url(self) -> str:
        return self._inner.url

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        wanted = UNKNOWN_BYTES if byte_range is None or byte_range.length is None else byte_range.length
        return await self._hedged(lambda: self._inner.get(key, byte_range), wanted)

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        return await self._inner.put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        size = memoryview(data).nbytes
        if size > HEDGED_BYTES_MAX:
            return await self._inner.create(key, data)
        return await self._hedged(lambda: self._inner.create(key, data), size)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        return await self._hedged(lambda: self._inner.list(prefix, start_after=start_after, limit=limit), UNKNOWN_BYTES)

    async def head(self, key: str) -> ObjectInfo:
        return await self._hedged(lambda: self._inner.head(key), 0)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _hedged(self, attempt: Attempt[T], size: int) -> T:
        self._saved = min(HEDGES_SAVED_MAX, self._saved + HEDGES_A_REQUEST)
        tries = [asyncio.ensure_future(attempt())]
        try:
            done, _ = await asyncio.wait(tries, timeout=self._after_s + size / BYTES_PER_S)
            if done:
                return tries[0].result()
            if self._saved >= 1:
                self._saved -= 1
                self.hedges += 1
                tries.append(asyncio.ensure_future(attempt()))
            return (await _first_answer(tries)).result()
        finally:
            for each in tries:
                each.cancel()  # nothing happens to one that is done, as both may be
                each.add_done_callback(_forget)


async def _first_answer(tries: Sequence[asyncio.Future[T]]) -> asyncio.Future[T]:
    """The first that says something; if all are `Unavailable`, the first of them."""
    pending = set(tries)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            if not isinstance(each.exception(), Unavailable):
                return each
    return tries[0]


def _forget(done: asyncio.Future[Any]) -> None:
    """Whatever it came to: nobody asks any more."""
    if not done.cancelled():
        done.exception()
