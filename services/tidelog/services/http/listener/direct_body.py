"""Receives the rest of a large body straight into the buffer from which it is decoded.

uvicorn passes a body on in the pieces that the event loop reads. Each piece is copied three times and wakes the task of
its request. With `received_directly` the socket is read into the buffer of the body, and the task wakes once. Nobody
else looks at these bytes: their number is that of the Content-Length, so the buffer is full where the body ends, and no
byte of the next request is read into it. A parser that never saw the body is replaced then. If the body is given up
before, the parser gets the bytes that were received, and continues as if it had seen them arrive.

On Windows the event loop reads without regard to the buffer's size, so bodies arrive in pieces there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httptools
from starlette.types import Scope

from tidelog.services.http.listener.joined_writes import JoinedWritesProtocol
from tidelog.storage.errors import TidelogError

_CONNECTION_KEY = "tidelog.connection"
PARSED_BYTES = 64 * 1024
"""The parser makes a copy of each piece of a body that it gets."""

Arrived = Callable[[int], None]
"""Gets the size of each piece that was received into the buffer. It may refuse it with a `TidelogError`."""


class DirectBodyProtocol(JoinedWritesProtocol):
    """A connection whose bodies may be received directly. `receives_directly`: the body under way is."""

    receives_directly = False

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[_CONNECTION_KEY] = self  # type: ignore[literal-required]  # ASGI allows further keys

    def on_body(self, body: bytes) -> None:
        if not self.receives_directly:
            super().on_body(body)

    def body_is_complete(self) -> None:
        """The parser did not see the end of the body."""
        self.parser = httptools.HttpRequestParser(self)
        with suppress(AttributeError):  # as uvicorn does, which supports httptools before 0.6.3, too
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.on_message_complete()

    def body_goes_on(self, begun: memoryview) -> None:
        """The parser did not see the part `begun` of the body, and gets the rest."""
        for start in range(0, len(begun), PARSED_BYTES):
            self.data_received(begun[start : start + PARSED_BYTES])  # type: ignore[arg-type]  # as the parser takes it


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
        if not self._connection.receives_directly:
            return
        if self._filled_bytes == len(self._buffer):
            self._connection.body_is_complete()
        else:
            self._connection.body_goes_on(self._buffer[: self._filled_bytes])
        self._connection.receives_directly = False
        self._connection.transport.set_protocol(self._connection)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled_bytes += nbytes
        try:
            self._arrived(nbytes)
        except TidelogError as error:
            self.failure = error
            self._connection.cycle.message_event.set()
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
    if not buffer or not isinstance(connection, DirectBodyProtocol) or sys.platform == "win32":
        yield None
        return
    direct = DirectBody(connection, buffer, arrived)
    direct.begin()
    try:
        yield direct
    finally:
        direct.end()
