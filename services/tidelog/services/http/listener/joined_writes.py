"""uvicorn's HTTP protocol with fewer system calls and copies a request.

uvicorn writes an answer's head and its body one after the other, and a socket that can take them is given each at
once: two system calls, and the client's thread is woken twice. Here a head waits for what follows it, until the end
of the event loop's turn at the latest, so that a stream's head does not wait for its first event.

A request's body is handed on as the bytes that came, where uvicorn copies each piece into a bytearray and that into
bytes again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_START = b"HTTP/1.1 "
JOINED_BYTES_MAX = 64 * 1024
"""A larger body is written by itself: to join it would copy it."""


class JoinedWritesProtocol(HttpToolsProtocol):
    """See the module's head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(JoiningTransport(transport, self.loop))

    def on_body(self, body: bytes) -> None:
        if not self.cycle.body:
            self.cycle.body = body  # type: ignore[assignment]  # bytes do all that uvicorn does with its bytearray
            body = b""
        super().on_body(body)


class JoiningTransport(asyncio.Transport):
    """`transport`, which gets an answer's head together with what is written next."""

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
        if self._head and len(data) <= JOINED_BYTES_MAX:
            data = b"".join((self._taken_head(), data))
        self._flush()
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._taken_head()
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
        if head := self._taken_head():
            self._transport.write(head)

    def _taken_head(self) -> bytes:
        head, self._head = self._head, b""
        if self._flushing:
            self._flushing.cancel()
            self._flushing = None
        return head
