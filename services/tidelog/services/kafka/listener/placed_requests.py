"""The requests of one connection that are placed and not answered: answers leave in the order of requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.services.kafka.protocol.api import Answer, Buffer
from tidelog.services.kafka.protocol.api_table import ServedApi
from tidelog.services.kafka.protocol.headers import answer_head


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRequest:
    """A request whose answer comes by `answer`. `began_s`: when it was placed. `errors`: how often each code is in the
    answer, once it is there."""

    api: ServedApi
    version: int
    correlation_id: int
    frame_bytes: int
    began_s: float
    answer: asyncio.Future[Answer]
    errors: Mapping[str, int] = field(default_factory=dict)

    def encoded(self) -> Sequence[Buffer]:
        """The answer with its header; empty if the client waits for none. Raises what the API raised."""
        body = self.answer.result()
        if body is None:
            return ()
        size = sum(memoryview(buffer).nbytes for buffer in body)
        return answer_head(self.api, self.version, self.correlation_id, size), *body


class PlacedRequests:
    """The requests in their order. `on_answer` is called when one has its answer."""

    __slots__ = ("_on_answer", "_requests")

    def __init__(self, on_answer: Callable[[], None]) -> None:
        self._requests: deque[PlacedRequest] = deque()
        self._on_answer = on_answer

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: PlacedRequest, *, is_wanted: bool) -> None:
        """Not `is_wanted`: its client is gone."""
        self._requests.append(request)
        request.answer.add_done_callback(self._answered)
        if not is_wanted:
            self.abandon()

    def finished(self) -> Iterator[PlacedRequest]:
        """Remove and yield the requests that may be answered now: those with an answer before which all are
        answered."""
        while self._requests and self._requests[0].answer.done():
            yield self._requests.popleft()

    def abandon(self) -> None:
        """The client is gone: stop waiting for records for it. Other requests run to their end."""
        for request in self._requests:
            if request.api.is_long_poll:
                request.answer.cancel()

    def _answered(self, _future: asyncio.Future[Answer]) -> None:
        self._on_answer()
