"""A store for which a test scripts the next answers. It records every request."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidelog.storage.errors import TidelogError
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.wrapping import Attempt, Request, WrappingObjectStore

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """The answer to the next request: `error`, after its effect or instead of it. None: the real answer."""

    error: TidelogError | None = None
    after_effect: bool = False


class ScriptedObjectStore(WrappingObjectStore):
    """`requests` look like ``"list wal/0000/0"``. `before` is awaited once, before the next request; a test uses it to
    let rivals act."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.requests: list[str] = []
        self.answers: deque[Answer] = deque()
        self.before: Callable[[], Awaitable[object]] | None = None

    def taken_requests(self) -> list[str]:
        """Return the requests since the last call."""
        taken, self.requests = self.requests, []
        return taken

    async def _send(self, request: Request, attempt: Attempt[T], /) -> T:
        self.requests.append(f"{request.verb.value} {request.key}")
        before, self.before = self.before, None
        if before is not None:
            await before()
        answer = self.answers.popleft() if self.answers else Answer()
        if answer.error is not None and not answer.after_effect:
            raise answer.error
        value = await attempt()
        if answer.error is not None:
            raise answer.error
        return value
