"""Reads a request's body within bounds of size, time and memory (inv. 10).

- A body that is too large is refused by its Content-Length before it is read, or at the first chunk beyond the limit.
- A compressed body is expanded piece by piece, up to the limit. Each piece is counted before it is made; all pieces
  except small ones are made in a thread.
- All bodies that are being read or served share `in_flight_bytes_max`. Beyond it a request is refused with
  `Overloaded`, and nothing of it is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa
from starlette.requests import Request
from starlette.types import Receive

from tidelog.services.http.bodies.arriving_body import ArrivingBody
from tidelog.services.http.listener.direct_body import received_directly
from tidelog.services.http.media import body_encoding
from tidelog.storage.errors import Overloaded, TooLarge
from tidelog.storage.object_store import Body
from tidelog.wire.errors import BodyTimeout, ClientGone, Unreadable

LIMIT_NAME = "request.max.bytes"
RECORDS_ADVICE = f"send fewer records per request, or raise {LIMIT_NAME}"
_RETRY_AFTER_S = 1.0
INLINE_BYTES = 1 << 14
"""The part of a compressed body that is expanded on the event loop; most bodies are no larger."""
EXPANDED_PIECE_BYTES = 1 << 20
_CODECS: Mapping[str, Literal["gzip", "zstd"]] = {"gzip": "gzip", "zstd": "zstd"}


class InFlightBody:
    """The memory that one body holds: `bytes_held`, until its request is answered. The body itself may have
    `limit_bytes`; `advice` says what to do about a larger one."""

    def __init__(self, reader: BodyReader, limit_bytes: int, advice: str) -> None:
        self._reader = reader
        self.limit_bytes = limit_bytes
        self.advice = advice
        self.bytes_held = 0
        self.bytes_allotted = 0

    def grow(self, size_bytes: int) -> None:
        """Take `size_bytes` more. Raises `Overloaded`."""
        self._reader.take(size_bytes)
        self.bytes_held += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Return `size_bytes` that are not needed any more."""
        self._reader.in_flight_bytes -= size_bytes
        self.bytes_held -= size_bytes

    def arriving(self, content_length: int | None) -> ArrivingBody:
        """A buffer of the body's size if it is known and there is room for it; otherwise the pieces are joined."""
        if content_length is None or not self._reader.allot(content_length):
            return ArrivingBody(None)
        self.bytes_allotted += content_length
        return ArrivingBody(content_length)


class BodyReader:
    """Reads bodies of at most `limit_bytes` each and `in_flight_bytes_max` together, each within `timeout_s`."""

    def __init__(self, limit_bytes: int, in_flight_bytes_max: int, timeout_s: float) -> None:
        self.limit_bytes = limit_bytes
        self._in_flight_bytes_max = max(limit_bytes, in_flight_bytes_max)
        self.timeout_s = timeout_s
        self.in_flight_bytes = 0
        self.allotted_bytes = 0

    def allot(self, size_bytes: int) -> bool:
        """Whether a buffer of `size_bytes` may be made before the bytes arrive. All such buffers together are bounded,
        because many requests that announce much and send nothing could take the whole address space."""
        if self.allotted_bytes + size_bytes > self._in_flight_bytes_max:
            return False
        self.allotted_bytes += size_bytes
        return True

    def take(self, size_bytes: int) -> None:
        if self.in_flight_bytes + size_bytes > self._in_flight_bytes_max:
            raise Overloaded(
                "too many large bodies at the same time: send the request again later", retry_after_s=_RETRY_AFTER_S
            )
        self.in_flight_bytes += size_bytes

    @contextmanager
    def in_flight(self, limit_bytes: int | None = None, advice: str = RECORDS_ADVICE) -> Iterator[InFlightBody]:
        """The memory of one body. Leave the block when the request is answered."""
        body = InFlightBody(self, limit_bytes or self.limit_bytes, advice)
        try:
            yield body
        finally:
            self.in_flight_bytes -= body.bytes_held
            self.allotted_bytes -= body.bytes_allotted

    async def read(self, request: Request, held: InFlightBody) -> Body:
        """The whole body, decompressed.

        Raises `TooLarge`, `BodyTimeout`, `ClientGone`, `Overloaded`, `UnsupportedMedia` and, for a compressed body
        that is damaged, `Unreadable`."""
        encoding = body_encoding(request)
        length = self.content_length(request, held)
        try:
            async with asyncio.timeout(self.timeout_s):
                body = await self._receive_all(request, held, length)
        except TimeoutError:
            raise self.too_slow() from None
        return await self.decompressed(body, encoding, held)

    async def decompressed(self, body: Body, encoding: str, held: InFlightBody) -> Body:
        """`body` without its Content-Encoding. Raises `TooLarge`, `Overloaded`, `Unreadable`."""
        if encoding == "identity":
            return body
        plain, piece_bytes = bytearray(), INLINE_BYTES
        with pa.CompressedInputStream(pa.BufferReader(body), _CODECS[encoding]) as stream:
            while piece := await _expand(stream, min(piece_bytes, held.limit_bytes + 1 - len(plain)), held, encoding):
                plain += piece
                if len(plain) > held.limit_bytes:
                    raise _too_large(f"the {encoding} body expands to", held)
                piece_bytes = INLINE_BYTES if len(piece) < piece_bytes else EXPANDED_PIECE_BYTES
        return memoryview(plain).toreadonly()

    def content_length(self, request: Request, held: InFlightBody) -> int | None:
        """The Content-Length of the request, if it has one. Raises `TooLarge`."""
        text = request.headers.get("content-length")
        if text is None or not text.isdecimal():
            return None
        if int(text) > held.limit_bytes:
            raise _too_large("the body is", held)
        return int(text)

    def admit_chunk(self, held: InFlightBody, size_bytes: int) -> None:
        """Count a chunk as it arrived. Raises `TooLarge`, `Overloaded`."""
        held.grow(size_bytes)
        if held.bytes_held > held.limit_bytes:
            raise _too_large("the body is", held)

    def too_slow(self) -> BodyTimeout:
        return BodyTimeout(
            f"the body did not arrive within {self.timeout_s:g} s: send it faster, or send a smaller one"
        )

    async def _receive_all(self, request: Request, held: InFlightBody, content_length: int | None) -> Body:
        chunk, more = await self._received(request.receive, held)
        if not more:
            return chunk
        arriving = held.arriving(content_length)
        arriving.add(chunk)

        def arrived(size_bytes: int) -> None:
            arriving.arrived(size_bytes)
            self.admit_chunk(held, size_bytes)

        with received_directly(request.scope, arriving.rest, arrived) as direct:
            while more:
                chunk, more = await self._received(request.receive, held)
                if direct and direct.failure:
                    raise direct.failure
                arriving.add(chunk)
        return arriving.whole()

    async def _received(self, receive: Receive, held: InFlightBody) -> tuple[bytes, bool]:
        """The next chunk, and whether there are more. Raises `ClientGone`, `TooLarge`, `Overloaded`."""
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone("the client closed the connection before its body was complete")
        chunk: bytes = message.get("body", b"")
        self.admit_chunk(held, len(chunk))
        return chunk, message.get("more_body", False)


async def _expand(stream: pa.CompressedInputStream, size_bytes: int, held: InFlightBody, encoding: str) -> bytes:
    """The next `size_bytes` of `stream`, fewer at its end. A large piece is made in a thread."""
    held.grow(size_bytes)
    try:
        inline = size_bytes <= INLINE_BYTES
        piece: bytes = stream.read(size_bytes) if inline else await asyncio.to_thread(stream.read, size_bytes)
    except OSError as error:
        raise Unreadable(f"the body is not complete {encoding} data: {error}") from error
    held.give_back(size_bytes - len(piece))
    return piece


def _too_large(what: str, held: InFlightBody) -> TooLarge:
    return TooLarge(
        f"{what} more than {held.limit_bytes} bytes: {held.advice}",
        limit_name=LIMIT_NAME,
        limit_bytes=held.limit_bytes,
    )
