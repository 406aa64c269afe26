"""The base of stores that wrap another store: counting, hedging, retrying, rationing.

Each call becomes a `Request` and a function that sends it to the inner store; `_send` gets both. A wrapper overrides
`_send` alone, and adds to a call what the wrapper is for. Without an override every call goes to the inner store.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidelog.storage.object_store import (
    LIST_PAGE_MAX,
    Body,
    ByteRange,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    delete_batches,
)

T = TypeVar("T")
Attempt = Callable[[], Coroutine[Any, Any, T]]
"""Sends the request once; may be called again."""


class Verb(Enum):
    GET = "get"
    PUT = "put"
    CREATE = "create"
    DELETE = "delete"
    LIST = "list"
    HEAD = "head"


class Request(NamedTuple):
    """One call. `key` is the prefix for a list, and the first key of several to delete. `body_bytes` is the size of the
    body that the call sends, or that a get of a range asks for; None if the size is not known before the answer."""

    verb: Verb
    key: str
    body_bytes: int | None = 0

    @property
    def sent_bytes(self) -> int:
        """The size of the body that the call sends; 0 for a call without one."""
        return self.body_bytes or 0 if self.verb in (Verb.PUT, Verb.CREATE) else 0


class WrappingObjectStore:
    """Implements `ObjectStore` by `inner`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @property
    def inner(self) -> ObjectStore:
        return self._inner

    @property
    def url(self) -> str:
        return self._inner.url

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        wanted_bytes = None if byte_range is None else byte_range.length
        return await self._send(Request(Verb.GET, key, wanted_bytes), lambda: self._inner.get(key, byte_range))

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        request = Request(Verb.PUT, key, memoryview(data).nbytes)
        return await self._send(request, lambda: self._inner.put(key, data, if_version=if_version))

    async def create(self, key: str, data: Body) -> str:
        request = Request(Verb.CREATE, key, memoryview(data).nbytes)
        return await self._send(request, lambda: self._inner.create(key, data))

    async def delete(self, key: str) -> None:
        await self._send(Request(Verb.DELETE, key), lambda: self._inner.delete(key))

    async def delete_many(self, keys: Sequence[str]) -> None:
        for batch in delete_batches(keys):
            await self._send(Request(Verb.DELETE, batch[0]), partial(self._inner.delete_many, batch))

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        request = Request(Verb.LIST, prefix, None)
        return await self._send(request, lambda: self._inner.list(prefix, start_after=start_after, limit=limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._send(Request(Verb.HEAD, key), lambda: self._inner.head(key))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _send(self, _: Request, attempt: Attempt[T], /) -> T:
        return await attempt()
