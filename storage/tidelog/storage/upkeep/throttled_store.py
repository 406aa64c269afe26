"""A store whose bytes are rationed: a token bucket over what is read and written together.

An operation waits until the bucket is not in debt, runs, and takes as many tokens as it moved bytes; so one as large
as a segment passes at once and is paid for afterwards. Over time no more than `bytes_per_s` pass, a second's worth of
them in a burst.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.storage.object_store import (
    LIST_PAGE_MAX,
    Body,
    ByteRange,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    flat_view,
)
from tidelog.storage.runtime import Runtime

BURST_S = 1.0
PAUSE_S_MIN = 0.001
"""A debt of less than a byte, as rounding leaves, is not waited for in steps that no clock can tell."""


class ThrottledObjectStore:
    """`inner`, with at most `bytes_per_s` of object bytes. Several users of one share the ration."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, bytes_per_s: int) -> None:
        self._inner = inner
        self._clock = runtime.clock
        self._bytes_per_s = bytes_per_s
        self._tokens = bytes_per_s * BURST_S
        self._filled_at_s = runtime.clock.monotonic()

    @property
    def inner(self) -> ObjectStore:
        return self._inner

    @property
    def url(self) -> str:
        return self._inner.url

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        await self._out_of_debt()
        stored = await self._inner.get(key, byte_range)
        self._tokens -= len(stored.data)
        return stored

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        await self._paid(len(flat_view(data)))
        return await self._inner.put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        await self._paid(len(flat_view(data)))
        return await self._inner.create(key, data)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        return await self._inner.list(prefix, start_after=start_after, limit=limit)

    async def head(self, key: str) -> ObjectInfo:
        return await self._inner.head(key)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _paid(self, size_bytes: int) -> None:
        await self._out_of_debt()
        self._tokens -= size_bytes

    async def _out_of_debt(self) -> None:
        self._fill()
        while self._tokens < 0:
            await self._clock.sleep(max(PAUSE_S_MIN, -self._tokens / self._bytes_per_s))
            self._fill()

    def _fill(self) -> None:
        now_s = self._clock.monotonic()
        earned = (now_s - self._filled_at_s) * self._bytes_per_s
        self._tokens = min(self._tokens + earned, self._bytes_per_s * BURST_S)
        self._filled_at_s = now_s
