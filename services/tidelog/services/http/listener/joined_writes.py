"""uvicorn's HTTP protocol with fewer system calls and fewer copies per request.

- uvicorn writes the head and the body of an answer separately: two system calls, and two wake-ups of the client. Here a
  head is written together with the next piece, or at the end of the event loop's turn, so that the head of a stream
  does not wait for its first event.
- uvicorn copies each piece of a request's body into a bytearray and then into bytes. Here the body is passed on as the
  bytes that arrived.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_START = b"HTTP/1.1 "
JOINED_BYTES_MAX = 64 * 1024
"""A larger body is written by the same system call as its head, but not joined with it, because that would copy it."""


class JoinedWritesProtocol(HttpToolsProtocol):
    """Passes on bodies without a copy, and writes through a `JoiningTransport`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(JoiningTransport(transport, self.loop))

    def on_body(self, body: bytes) -> None:
        if not self.cycle.body:
            self.cycle.body = body  # type: ignore[assignment]  # bytes support every operation that uvicorn needs
            body = b""
        super().on_body(body)


class JoiningTransport(asyncio.Transport):
    """Writes to `transport`, and joins the head of an answer with the next write."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._flushing: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._head and data[: len(_HEAD_START)] == _HEAD_START:
            self._head = bytes(data)
            self._flushing = self._loop.call_soon(self._flush)
            return
        if not self._head:
            self._transport.write(data)
        elif len(data) <= JOINED_BYTES_MAX:
            self._transport.write(b"".join((self._take_head(), data)))
        else:
            self._transport.writelines((self._take_head(), data))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._take_head()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def _flush(self) -> None:
        if head := self._take_head():
            self._transport.write(head)

    def _take_head(self) -> bytes:
        head, self._head = self._head, b""
        if self._flushing:
            self._flushing.cancel()
            self._flushing = None
        return head
