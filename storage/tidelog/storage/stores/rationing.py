"""Stores that give background work a limited share of the bucket: of bytes, or of requests.

- `ThrottledObjectStore` limits the bytes of objects a second, read and written together.
- `PacedObjectStore` limits the requests a second, and sends one at a time. A request takes event-loop time even if it
  moves few bytes: a page of a listing takes milliseconds.

Both use a token bucket that may go into debt: a request passes when the bucket is not in debt, and its tokens are taken
even if the bucket has fewer. So an object larger than the bucket passes at once, and the next request waits for it.
aiolimiter does not fit: it reads the event loop's time, not our `Clock` (tests run in virtual time), and it refuses an
amount above its capacity.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tidelog.storage.object_store import ObjectStore, StoredObject
from tidelog.storage.runtime import Clock, Runtime
from tidelog.storage.stores.wrapping import Attempt, Request, Verb, WrappingObjectStore

T = TypeVar("T")

BURST_S = 1.0
PAUSE_S_MIN = 0.001
"""The shortest wait. Rounding can leave a debt too small for the clock to show its end."""


class _TokenBucket:
    """Earns `per_s` tokens a second and holds at most `burst`."""

    def __init__(self, clock: Clock, per_s: float, burst: float) -> None:
        assert per_s > 0, per_s
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._filled_at_s = clock.monotonic()

    def take(self, tokens: int) -> None:
        self._tokens -= tokens

    async def out_of_debt(self) -> None:
        self._fill()
        while self._tokens < 0:
            await self._clock.sleep(max(PAUSE_S_MIN, -self._tokens / self._per_s))
            self._fill()

    def _fill(self) -> None:
        now_s = self._clock.monotonic()
        self._tokens = min(self._tokens + (now_s - self._filled_at_s) * self._per_s, self._burst)
        self._filled_at_s = now_s


class ThrottledObjectStore(WrappingObjectStore):
    """At most `bytes_per_s` of object bytes, and `BURST_S` seconds' worth in a burst. All users of one instance share
    the limit."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, bytes_per_s: int) -> None:
        super().__init__(inner)
        self._bytes = _TokenBucket(runtime.clock, bytes_per_s, bytes_per_s * BURST_S)

    async def _send(self, request: Request, attempt: Attempt[T], /) -> T:
        if request.verb not in (Verb.GET, Verb.PUT, Verb.CREATE):
            return await attempt()
        await self._bytes.out_of_debt()
        self._bytes.take(request.sent_bytes)
        answer = await attempt()
        if isinstance(answer, StoredObject):
            self._bytes.take(len(answer.data))
        return answer


class PacedObjectStore(WrappingObjectStore):
    """At most `requests_per_s` requests a second, evenly spaced, one at a time."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, requests_per_s: float) -> None:
        super().__init__(inner)
        self._requests = _TokenBucket(runtime.clock, requests_per_s, burst=0)
        self._turn = asyncio.Lock()

    async def _send(self, _: Request, attempt: Attempt[T], /) -> T:
        async with self._turn:
            await self._requests.out_of_debt()
            self._requests.take(1)
            return await attempt()
