"""Reading a request's body within bounds of size, time and memory (inv. 10).

A body is refused by its Content-Length before a byte of it is read, or at the first chunk past the limit where it
tells none or lies. A compressed one is undone only as far as the limit. All bodies being read or served at one time
share `in_flight_bytes_max`: past it `Overloaded`, with nothing taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa
from starlette.requests import Request
from starlette.types import Receive

from tidelog.services.http.media import body_encoding
from tidelog.services.http.problems import BodyTimeout, ClientGone, Unreadable
from tidelog.storage.errors import Overloaded, TooLarge

LIMIT_NAME = "request.max.bytes"
_RETRY_AFTER_S = 1.0
_THREAD_BYTES_MIN = 65_536
_CODECS: dict[str, Literal["gzip", "zstd"]] = {"gzip": "gzip", "zstd": "zstd"}


class InFlightBody:
    """One body's share of the memory for bodies; `bytes_held` goes back when the request is answered."""

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self.bytes_held = 0

    def grow(self, size_bytes: int) -> None:
        """Take `size_bytes` more, or raise `Overloaded`."""
        self._reader.take(size_bytes)
        self.bytes_held += size_bytes


class BodyReader:
    """Reads bodies of at most `limit_bytes` each and `in_flight_bytes_max` together, each within `timeout_s`."""

    def __init__(self, limit_bytes: int, in_flight_bytes_max: int, timeout_s: float) -> None:
        self.limit_bytes = limit_bytes
        self._in_flight_bytes_max = max(limit_bytes, in_flight_bytes_max)
        self._timeout_s = timeout_s
        self.in_flight_bytes = 0

    def take(self, size_bytes: int) -> None:
        if self.in_flight_bytes + size_bytes > self._in_flight_bytes_max:
            raise Overloaded("too many large bodies at once: send this one again later", retry_after_s=_RETRY_AFTER_S)
        self.in_flight_bytes += size_bytes

    @contextmanager
    def in_flight(self) -> Iterator[InFlightBody]:
        """A place for one body; leave it when the request is answered."""
        body = InFlightBody(self)
        try:
            yield body
        finally:
            self.in_flight_bytes -= body.bytes_held

    async def read(self, request: Request, held: InFlightBody) -> bytes:
        """The whole body, its Content-Encoding undone.

        Raises `TooLarge`, `BodyTimeout`, `ClientGone`, `Overloaded`, `UnsupportedMedia` and, for a compressed body
        that is damaged, `Unreadable`."""
        encoding = body_encoding(request)
        self._check_content_length(request)
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._receive_all(request.receive, held)
        except TimeoutError:
            raise BodyTimeout(
                f"the body did not arrive within {self._timeout_s:g} s: send it faster, or less of it"
            ) from None
        if encoding == "identity":
            return body
        if len(body) < _THREAD_BYTES_MIN:
            plain = self._undo(body, encoding)
        else:
            plain = await asyncio.to_thread(self._undo, body, encoding)
        held.grow(len(plain))
        return plain

    def _check_content_length(self, request: Request) -> None:
        text = request.headers.get("content-length")
        if text is not None and text.isdecimal() and int(text) > self.limit_bytes:
            raise self._too_large("the body is")

    async def _receive_all(self, receive: Receive, held: InFlightBody) -> bytes:
        message = await receive()
        chunks: list[bytes] = []
        while message["type"] == "http.request":
            chunk: bytes = message.get("body", b"")
            held.grow(len(chunk))
            if held.bytes_held > self.limit_bytes:
                raise self._too_large("the body is")
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunk if len(chunks) == 1 else b"".join(chunks)
            message = await receive()
        raise ClientGone("the client left before its body was complete")

    def _undo(self, body: bytes, encoding: str) -> bytes:
        """The bytes that `body` was compressed from; never more than the limit and one are made."""
        try:
            with pa.CompressedInputStream(pa.BufferReader(body), _CODECS[encoding]) as stream:
                plain: bytes = stream.read(self.limit_bytes + 1)
        except OSError as error:
            raise Unreadable(f"the body is not whole {encoding}: {error}") from error
        if len(plain) > self.limit_bytes:
            raise self._too_large(f"the {encoding} body expands to")
        return plain

    def _too_large(self, what: str) -> TooLarge:
        return TooLarge(
            f"{what} more than {self.limit_bytes} bytes: send fewer records a request, or raise {LIMIT_NAME}",
            limit_name=LIMIT_NAME,
            limit_bytes=self.limit_bytes,
        )
