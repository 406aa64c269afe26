"""Send again what the store could not answer: jittered backoff under a deadline, and nothing else.

Only `Unavailable` and its kind (`Contended`) are sent again; every other error is an answer. The waits are "full
jitter" (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/): evenly spread from zero to a bound
that doubles, so that callers that failed together do not come back together.

A retried write can meet itself
-------------------------------
`Unavailable` says nothing of the outcome. If the first `create` took effect and only its answer was lost, the second
one is told `Conflict`, by its own object; a `put` with `if_version` likewise. This wrapper can neither know nor guess
whose object that is, so it hands the `Conflict` on as it is. Whoever writes reads what is there and compares ids: the
commit protocol of the write-ahead log does, and so does everything else that appends to an object log.

The deadline bounds when a try may begin. How long one may last is the store's own limit (`stores.s3.S3Settings`), since
ending a call from outside takes an event loop's cancellation, and this also runs in the simulation, which has none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectInfo, ObjectStore, StoredObject
from tidelog.storage.runtime import Runtime

T = TypeVar("T")

_log = logging.getLogger(__name__)

FULL_JITTER = Backoff(first_s=0.05, max_s=2.0, least_share=0.0)


@dataclass(frozen=True)
class RetryPolicy:
    """No try begins later than `deadline_s` after the first one; the waits between are `backoff`'s."""

    deadline_s: float = 30.0
    backoff: Backoff = FULL_JITTER


class RetryingObjectStore:
    """`inner`, asked again while it is `Unavailable`. Raises the last such error once the deadline forbids to wait."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, policy: RetryPolicy | None = None) -> None:
        self._inner = inner
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._policy = policy or RetryPolicy()

    @property
    def inner(self) -> ObjectStore:
        return self._inner

    @property
    def url(self) -> str:
        return self._inner.url

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        return await self._answered(lambda: self._inner.get(key, byte_range))

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        return await self._answered(lambda: self._inner.put(key, data, if_version=if_version))

    async def create(self, key: str, data: Body) -> str:
        return await self._answered(lambda: self._inner.create(key, data))

    async def delete(self, key: str) -> None:
        await self._answered(lambda: self._inner.delete(key))

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        return await self._answered(lambda: self._inner.list(prefix, start_after=start_after, limit=limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._answered(lambda: self._inner.head(key))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        deadline_s = self._clock.monotonic() + self._policy.deadline_s
        failures = 0
        while True:
            try:
                return await attempt()
            except Unavailable as error:
                failures += 1
                if failures == 1:  # once a call: an outage is told, and does not fill the log
                    _log.warning(
                        "the store did not answer, asking again for %.0f s: %s", self._policy.deadline_s, error
                    )
                wait_s = self._policy.backoff.delay_s(failures, self._entropy)
                if self._clock.monotonic() + wait_s > deadline_s:
                    raise
            await self._clock.sleep(wait_s)
