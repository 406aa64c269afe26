"""A bucket in this process's memory: for tests, the simulation, and brokers whose data may be lost.

The other stores are compared with it, so it is simple: a dictionary of objects and a sorted list of their keys. No call
waits, so every call is atomic on an event loop, in the simulation, and in a debugger. Not for use from several threads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from hashlib import sha256

from tidelog.storage.errors import Conflict, NoSuchObject
from tidelog.storage.object_store import (
    LIST_PAGE_MAX,
    Body,
    ByteRange,
    ObjectInfo,
    StoredObject,
    checked_key,
    checked_limit,
)
from tidelog.storage.runtime import Clock, SystemClock

VERSION_DIGITS = 32


class MemoryObjectStore:
    """Implements `ObjectStore`. A version follows from the content, like S3's ETag: the same bytes have the same
    version."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []

    @property
    def url(self) -> str:
        return "memory:"

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        found = self._found(key)
        if byte_range is None:
            return found
        start, stop = byte_range.within(found.info.size)
        return StoredObject(found.info, found.data[start:stop])

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        present = self._objects.get(checked_key(key))
        if if_version is not None and (present is None or present.info.version != if_version):
            raise Conflict(f"{key} is not at version {if_version}: read it again")
        return self._write(key, data)

    async def create(self, key: str, data: Body) -> str:
        if checked_key(key) in self._objects:
            raise Conflict(f"{key} exists: read it to see whose it is")
        return self._write(key, data)

    async def delete(self, key: str) -> None:
        if self._objects.pop(checked_key(key), None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in [checked_key(key) for key in keys]:
            await self.delete(key)

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        first = max(bisect_left(self._keys, prefix), bisect_right(self._keys, start_after))
        page = self._keys[first : first + checked_limit(limit)]
        return [self._objects[key].info for key in page if key.startswith(prefix)]

    async def head(self, key: str) -> ObjectInfo:
        return self._found(key).info

    async def aclose(self) -> None:
        """Does nothing: the objects live as long as this store."""

    def _found(self, key: str) -> StoredObject:
        try:
            return self._objects[checked_key(key)]
        except KeyError:
            raise NoSuchObject(f"there is no object {key}") from None

    def _write(self, key: str, data: Body) -> str:
        if key not in self._objects:
            insort(self._keys, key)
        body = bytes(data)
        info = ObjectInfo(key, len(body), sha256(body).hexdigest()[:VERSION_DIGITS], self._clock.now_ms())
        self._objects[key] = StoredObject(info, body)
        return info.version
