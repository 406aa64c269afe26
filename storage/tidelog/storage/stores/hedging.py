"""Sends a request a second time if it takes unusually long, and takes the first answer.

A connection that hangs then costs a shard about a second instead of the time limit of a request (`stores.s3_settings`).
Most requests are answered long before `after_s` and are sent once: a commit is one PUT.

Which requests
--------------
- `get`, `head` and `list` change nothing.
- `create` succeeds once. If the first request took effect, the second one conflicts with the caller's own object. The
  same happens when `stores.retrying` sends a create again, so every caller of `create` compares ids after a `Conflict`.
  Bodies above `HEDGED_BYTES_MAX` are sent once.
- `put` and `delete` are sent once: the slower of two could undo another process's write.

The first value or error other than `Unavailable` is the answer. After `Unavailable` the other request decides. The
remaining request is cancelled; like any request that is given up, it may still take effect.

How many
--------
If the whole store is slow, a second request for everything would double its load. So second requests are rationed:
each request earns `HEDGES_A_REQUEST` of one, and at most `HEDGES_SAVED_MAX` are saved up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.wrapping import Attempt, Request, Verb, WrappingObjectStore

HEDGED_BYTES_MAX = 16 << 20
UNKNOWN_BYTES = 8 << 20
"""The size assumed for an answer whose size is not known."""
BYTES_PER_S = 4 << 20
"""The wait is `after_s`, and one second more for each so many bytes of the body."""
HEDGES_SAVED_MAX = 10
HEDGES_A_REQUEST = 0.05

T = TypeVar("T")


class HedgingObjectStore(WrappingObjectStore):
    """`hedges` counts the second requests."""

    def __init__(self, inner: ObjectStore, *, after_s: float) -> None:
        assert after_s > 0, after_s
        super().__init__(inner)
        self._after_s = after_s
        self._saved = float(HEDGES_SAVED_MAX)
        self.hedges = 0

    async def _send(self, request: Request, attempt: Attempt[T], /) -> T:
        if request.verb in (Verb.PUT, Verb.DELETE) or request.sent_bytes > HEDGED_BYTES_MAX:
            return await attempt()
        return await self._hedged(attempt, UNKNOWN_BYTES if request.body_bytes is None else request.body_bytes)

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
                each.cancel()  # does nothing to a finished one
                each.add_done_callback(_forget)


async def _first_answer(tries: Sequence[asyncio.Future[T]]) -> asyncio.Future[T]:
    """The first that is not `Unavailable`; if all are, the first of them."""
    pending = set(tries)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            if not isinstance(each.exception(), Unavailable):
                return each
    return tries[0]


def _forget(done: asyncio.Future[Any]) -> None:
    """Retrieve the outcome, so that asyncio does not log an exception that nobody retrieved."""
    if not done.cancelled():
        done.exception()
