"""Bounds on connections before a route sees anything of them: how many there are, and how slow and large a head is.

- **`connections.max`** counts accepted sockets. One more is taken, but its first request is marked (`is_beyond`): the
  front refuses it with 503 `overloaded`, unless it asks about the broker itself, and then the connection is closed. So
  probes and metrics are answered when clients have taken all places. Beyond `SPARE_MAX` more it is closed at once.
- **`request.head.timeout.ms`** bounds the time from the first byte of a head, or the start of the connection, to the
  end of the head. A client that sends a byte now and then holds a connection no longer than that (slowloris).
- **`HEAD_BYTES_MAX`** bounds the size of a head.

uvicorn has a timeout for idle connections alone, and only once a request was answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tidelog.services.http.answers.problems import PROBLEM_MEDIA, Problem
from tidelog.services.http.listener.joined_writes import JoinedWritesProtocol

SPARE_MAX = 64
HEAD_BYTES_MAX = 64 * 1024
_BEYOND_KEY = "tidelog.beyond_connections_max"


@dataclass(frozen=True)
class ConnectionBounds:
    """The settings of the same names."""

    connections_max: int
    head_timeout_s: float


def is_beyond(scope: Scope) -> bool:
    """Whether the request came over a connection beyond ``connections.max``."""
    return _BEYOND_KEY in scope


class BoundedProtocol(JoinedWritesProtocol):
    """See the module's head."""

    def __init__(self, *args: Any, bounds: ConnectionBounds, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bounds = bounds
        self._beyond = False
        self._head_open = False
        self._head_bytes = 0
        self._head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        beyond = len(self.connections) - self._bounds.connections_max
        if beyond > SPARE_MAX:
            transport.abort()
            return
        if beyond > 0:
            self._beyond = True
            self.app = self._marked
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", "the head of the request is too large"
                )
                return
        if self._head_due is None and (self._head_open or not self._is_answering()):
            self._expect_head()

    def on_message_begin(self) -> None:
        self._head_open, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_open = False
        self._stop_expecting()
        super().on_headers_complete()
        if self._beyond:
            self.cycle.keep_alive = False

    async def _marked(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_BEYOND_KEY] = True
        await self.config.loaded_app(scope, receive, send)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever uvicorn declares
        return cycle is not None and not cycle.response_complete

    def _expect_head(self) -> None:
        if not self.transport.is_closing():
            self._head_due = self.loop.call_later(self._bounds.head_timeout_s, self._head_is_late)

    def _stop_expecting(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _head_is_late(self) -> None:
        """A head that is pipelined behind a request has time until that one is answered."""
        self._head_due = None
        if self._is_answering():
            self._expect_head()
        elif self._head_open:
            self._refuse(
                HTTPStatus.REQUEST_TIMEOUT, "request_timeout", "the head of the request did not arrive in time"
            )
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, code: str, detail: str) -> None:
        """Answer what is no request yet, and close."""
        self._stop_expecting()
        body = Problem(status, code, detail).body()
        head = (
            f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: {PROBLEM_MEDIA}\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
