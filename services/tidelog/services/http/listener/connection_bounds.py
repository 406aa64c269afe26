"""Bounds the number of connections, and the time and size of a request's head.

- **`connections.max`** counts accepted sockets. Up to `SPARE_MAX` further connections are accepted, but their first
  request is marked (`is_beyond`) and the connection is closed after it. The front refuses a marked request with 503
  `overloaded`, unless it asks about the broker itself. So probes and metrics are answered even if clients hold all
  connections. Any connection beyond that is closed at once.
- **`request.head.timeout.ms`** bounds the time from the first byte of a head, or from the start of the connection, to
  the end of the head. So a client that sends one byte now and then cannot hold a connection (slowloris).
- **`HEAD_BYTES_MAX`** bounds the size of a head.

uvicorn bounds only idle connections, and only after their first request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tidelog.services.http.listener.direct_body import DirectBodyProtocol
from tidelog.wire.errors import PROBLEM_MEDIA, refusal

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


class BoundedProtocol(DirectBodyProtocol):
    """uvicorn's protocol with these bounds."""

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
        """The time of a pipelined head begins when the request before it is answered."""
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
        """Answer before the request is complete, and close the connection."""
        self._stop_expecting()
        body = msgspec.json.encode(refusal(status, code, detail))
        head = (
            f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: {PROBLEM_MEDIA}\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
