"""Receives the rest of a large body straight into the buffer from which it is decoded.

uvicorn passes a body on in the pieces that the event loop reads. Each piece is copied two more times and wakes the task
of its request, which took a fifth of a broker's CPU at full rate. With `received_directly` the socket is read into the
buffer of the body, and the task wakes once:

    socket --recv--> buffer of the body --> parser, which finds the end of the body --> the task of the request

The parser still sees every byte, so nothing changes for a body that ends early, a broken or a pipelined request. The
buffer ends where the body ends by its Content-Length, so no byte of the next request is ever read into it. On Windows
the event loop reads without regard to the buffer's size, so bodies arrive in pieces there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Scope

from tidelog.services.http.listener.joined_writes import JoinedWritesProtocol
from tidelog.storage.errors import TidelogError

_CONNECTION_KEY = "tidelog.connection"

Arrived = Callable[[int], None]
"""Gets the size of each piece that was received into the buffer. It may refuse it with a `TidelogError`."""


class DirectBodyProtocol(JoinedWritesProtocol):
    """A connection whose bodies may be received directly. `receives_directly`: the body under way is."""

    receives_directly = False

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[_CONNECTION_KEY] = self  # type: ignore[typeddict-unknown-key]  # ASGI allows further keys

    def on_body(self, body: bytes) -> None:
        if not self.receives_directly:
            super().on_body(body)


class DirectBody(asyncio.BufferedProtocol):
    """Stands for `connection` at its transport until `buffer` is full. `failure`: why `arrived` refused a piece."""

    def __init__(self, connection: DirectBodyProtocol, buffer: memoryview, arrived: Arrived) -> None:
        self._connection = connection
        self._buffer = buffer
        self._arrived = arrived
        self._filled_bytes = 0
        self.failure: TidelogError | None = None

    def begin(self) -> None:
        self._connection.receives_directly = True
        self._connection.transport.set_protocol(self)

    def end(self) -> None:
        """Give the transport back to the connection, unless that is done or the transport is closed."""
        if self._connection.receives_directly:
            self._connection.receives_directly = False
            self._connection.transport.set_protocol(self._connection)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        piece = self._buffer[self._filled_bytes : self._filled_bytes + nbytes]
        self._filled_bytes += nbytes
        try:
            self._arrived(nbytes)
        except TidelogError as error:
            self.failure = error
            self._connection.cycle.message_event.set()
        self._connection.data_received(piece)  # type: ignore[arg-type]  # the parser takes any bytes
        if self.failure or self._filled_bytes == len(self._buffer):
            self.end()

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.receives_directly = False
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


@contextmanager
def received_directly(scope: Scope, buffer: memoryview | None, arrived: Arrived) -> Iterator[DirectBody | None]:
    """While the block runs, receive the rest of a request's body into `buffer`, which has exactly its size. ASGI's
    messages of the request then have no bytes. None: the server does not support it, or there is no buffer, and the
    messages have the bytes. Enter the block right after a message of the request, without an await in between."""
    connection = scope.get(_CONNECTION_KEY)
    if buffer is None or not isinstance(connection, DirectBodyProtocol) or sys.platform == "win32":
        yield None
        return
    direct = DirectBody(connection, buffer, arrived)
    direct.begin()
    try:
        yield direct
    finally:
        direct.end()
