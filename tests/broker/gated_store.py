"""A store that can hold back writes and reads of WAL entries, so that a test can look at the state meanwhile."""

import asyncio
from collections.abc import Sequence

from tidelog.storage.layout import WAL_PREFIX
from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectInfo, ObjectStore, StoredObject


class GatedObjectStore:
    """Wraps `inner`. While `gate` is not set, creates under a prefix wait."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self._held_prefix = WAL_PREFIX
        self.arrived = asyncio.Event()
        self.read_gate = asyncio.Event()
        self.read_gate.set()
        self.read_arrived = asyncio.Event()

    def hold(self, prefix: str = WAL_PREFIX) -> None:
        """Hold back creates under `prefix` from now on."""
        self._held_prefix = prefix
        self.arrived.clear()
        self.gate.clear()

    def hold_reads(self) -> None:
        """Hold back reads of WAL entries until `read_gate` is set."""
        self.read_arrived.clear()
        self.read_gate.clear()

    @property
    def url(self) -> str:
        return self._inner.url

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        if key.startswith(WAL_PREFIX) and not self.read_gate.is_set():
            self.read_arrived.set()
            await self.read_gate.wait()
        return await self._inner.get(key, byte_range)

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        return await self._inner.put(key, data, if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        if key.startswith(self._held_prefix) and not self.gate.is_set():
            self.arrived.set()
            await self.gate.wait()
        return await self._inner.create(key, data)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        return await self._inner.list(prefix, start_after=start_after, limit=limit)

    async def head(self, key: str) -> ObjectInfo:
        return await self._inner.head(key)

    async def aclose(self) -> None:
        self.gate.set()
        self.read_gate.set()
        await self._inner.aclose()
