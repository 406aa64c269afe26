"""Let requests through one after the other, at most so many a second: for work that has all the time in the world.

What is asked meanwhile waits for its turn. `ThrottledObjectStore` rations bytes; this rations requests, each of which
takes an event loop some of its time whatever it moves, as a page of a listing takes milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectInfo, ObjectStore, StoredObject
from tidelog.storage.runtime import Runtime


class PacedObjectStore:
    """`inner`, asked at most `requests_per_s` times a second, and never twice at once."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, requests_per_s: float) -> None:
        assert requests_per_s > 0, requests_per_s
        self._inner = inner
        self._clock = runtime.clock
        self._pause_s = 1.0 / requests_per_s
        self._next_at_s = runtime.clock.monotonic()
        self._turn = asyncio.Lock()

    @property
    def inner(self) -> ObjectStore:
        return self._inner

    @property
    def url(self) -> str:
        return self._inner.url

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        async with self._turn:
            await self._until_next()
            return await self._inner.get(key, byte_range)

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        async with self._turn:
            await self._until_next()
            return await self._inner.put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        async with self._turn:
            await self._until_next()
            return await self._inner.create(key, data)

    async def delete(self, key: str) -> None:
        async with self._turn:
            await self._until_next()
            await self._inner.delete(key)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        async with self._turn:
            await self._until_next()
            return await self._inner.list(prefix, start_after=start_after, limit=limit)

    async def head(self, key: str) -> ObjectInfo:
        async with self._turn:
            await self._until_next()
            return await self._inner.head(key)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _until_next(self) -> None:
        now_s = self._clock.monotonic()
        if now_s < self._next_at_s:
            await self._clock.sleep(self._next_at_s - now_s)
        self._next_at_s = max(now_s, self._next_at_s) + self._pause_s
