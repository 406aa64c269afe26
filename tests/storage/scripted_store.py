"""A store for which a test scripts the next answers. It records every request."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelog.storage.errors import TidelogError
from tidelog.storage.object_store import LIST_PAGE_MAX, Body, ByteRange, ObjectInfo, ObjectStore, StoredObject

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """The answer to the next request: `error`, after its effect or instead of it. None: the real answer."""

    error: TidelogError | None = None
    after_effect: bool = False


class ScriptedObjectStore:
    """Implements `ObjectStore` over `inner`. `requests` look like ``"create wal/0000/_floor"``. `before` is awaited
    once, before the next request; a test uses it to let rivals act."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.requests: list[str] = []
        self.answers: deque[Answer] = deque()
        self.before: Callable[[], Awaitable[object]] | None = None
        self.url = inner.url

    def taken_requests(self) -> list[str]:
        """Return the requests since the last call."""
        taken, self.requests = self.requests, []
        return taken

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        return await self._answer(f"get {key}", lambda: self.inner.get(key, byte_range))

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        return await self._answer(f"put {key}", lambda: self.inner.put(key, data, if_version=if_version))

    async def create(self, key: str, data: Body) -> str:
        return await self._answer(f"create {key}", lambda: self.inner.create(key, data))

    async def delete(self, key: str) -> None:
        await self._answer(f"delete {key}", lambda: self.inner.delete(key))

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        return await self._answer(
            f"list {prefix}", lambda: self.inner.list(prefix, start_after=start_after, limit=limit)
        )

    async def head(self, key: str) -> ObjectInfo:
        return await self._answer(f"head {key}", lambda: self.inner.head(key))

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _answer(self, request: str, call: Callable[[], Awaitable[T]]) -> T:
        self.requests.append(request)
        before, self.before = self.before, None
        if before is not None:
            await before()
        answer = self.answers.popleft() if self.answers else Answer()
        if answer.error is not None and not answer.after_effect:
            raise answer.error
        value = await call()
        if answer.error is not None:
            raise answer.error
        return value
