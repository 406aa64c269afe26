"""Reading a request's body within bounds of size, time and memory (inv. 10).

A body is refused by its Content-Length before a byte of it is read, or at the first chunk past the limit where it
tells none or lies. A compressed one is expanded only as far as the limit, piece by piece; each piece is counted before
it is made, and all but a small first one are made in a thread. All bodies being read or served at one time share
`in_flight_bytes_max`: past it `Overloaded`, with nothing taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.types import Receive

from tidelog.services.http.answers.problems import BodyTimeout, ClientGone
from tidelog.services.http.bodies.arriving_body import ArrivingBody
from tidelog.services.http.bodies.expanding_body import ExpandingBody
from tidelog.services.http.media import body_encoding
from tidelog.storage.errors import Overloaded, TooLarge
from tidelog.storage.object_store import Body

LIMIT_NAME = "request.max.bytes"
_RETRY_AFTER_S = 1.0
INLINE_BYTES = 1 << 14
"""So much of a compressed body is expanded on the event loop: most bodies end there."""
EXPANDED_PIECE_BYTES = 1 << 20


class InFlightBody:
    """One body's share of the memory for bodies; `bytes_held` goes back when the request is answered. The body itself
    may have `limit_bytes`."""

    def __init__(self, reader: BodyReader, limit_bytes: int) -> None:
        self._reader = reader
        self.limit_bytes = limit_bytes
        self.bytes_held = 0
        self.bytes_allotted = 0

    def grow(self, size_bytes: int) -> None:
        """Take `size_bytes` more, or raise `Overloaded`."""
        self._reader.take(size_bytes)
        self.bytes_held += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Of what was taken, return what is not needed after all."""
        self._reader.in_flight_bytes -= size_bytes
        self.bytes_held -= size_bytes

    def arriving(self, told_bytes: int | None) -> ArrivingBody:
        """Where the body is to be put together, as large as it was told if there is room for it beside the others."""
        if told_bytes is None or not self._reader.allot(told_bytes):
            return ArrivingBody(None)
        self.bytes_allotted += told_bytes
        return ArrivingBody(told_bytes)


class BodyReader:
    """Reads bodies of at most `limit_bytes` each and `in_flight_bytes_max` together, each within `timeout_s`."""

    def __init__(self, limit_bytes: int, in_flight_bytes_max: int, timeout_s: float) -> None:
        self.limit_bytes = limit_bytes
        self._in_flight_bytes_max = max(limit_bytes, in_flight_bytes_max)
        self.timeout_s = timeout_s
        self.in_flight_bytes = 0
        self.allotted_bytes = 0

    def allot(self, told_bytes: int) -> bool:
        """Whether a buffer of `told_bytes` may be made before they have come. All together are bounded as what has
        come is, or many that tell much and send nothing would take all of the address space."""
        if self.allotted_bytes + told_bytes > self._in_flight_bytes_max:
            return False
        self.allotted_bytes += told_bytes
        return True

    def take(self, size_bytes: int) -> None:
        if self.in_flight_bytes + size_bytes > self._in_flight_bytes_max:
            raise Overloaded("too many large bodies at once: send this one again later", retry_after_s=_RETRY_AFTER_S)
        self.in_flight_bytes += size_bytes

    @contextmanager
    def in_flight(self, limit_bytes: int | None = None) -> Iterator[InFlightBody]:
        """A place for one body; leave it when the request is answered."""
        body = InFlightBody(self, limit_bytes or self.limit_bytes)
        try:
            yield body
        finally:
            self.in_flight_bytes -= body.bytes_held
            self.allotted_bytes -= body.bytes_allotted

    async def read(self, request: Request, held: InFlightBody) -> Body:
        """The whole body, its Content-Encoding undone.

        Raises `TooLarge`, `BodyTimeout`, `ClientGone`, `Overloaded`, `UnsupportedMedia` and, for a compressed body
        that is damaged, `Unreadable`."""
        encoding = body_encoding(request)
        told_bytes = self.told_bytes(request, held)
        try:
            async with asyncio.timeout(self.timeout_s):
                body = await self._receive_all(request.receive, held, told_bytes)
        except TimeoutError:
            raise self.too_slow() from None
        return await self.undone(body, encoding, held)

    async def undone(self, body: Body, encoding: str, held: InFlightBody) -> Body:
        """`body` without its Content-Encoding. It is expanded piece by piece, each counted before it is made. Raises
        `TooLarge`, `Overloaded`, `Unreadable`."""
        if encoding == "identity":
            return body
        plain, asked_bytes = bytearray(), INLINE_BYTES
        with ExpandingBody(body, encoding) as expanding:
            while piece := await self._expanded(expanding, min(asked_bytes, held.limit_bytes + 1 - len(plain)), held):
                plain += piece
                if len(plain) > held.limit_bytes:
                    raise _too_large(f"the {encoding} body expands to", held.limit_bytes)
                asked_bytes = INLINE_BYTES if len(piece) < asked_bytes else EXPANDED_PIECE_BYTES
        return memoryview(plain).toreadonly()

    async def _expanded(self, expanding: ExpandingBody, size_bytes: int, held: InFlightBody) -> bytes:
        """The next `size_bytes`, fewer at the end. A small piece is made here, another one in a thread."""
        held.grow(size_bytes)
        if size_bytes <= INLINE_BYTES:
            piece = expanding.read(size_bytes)
        else:
            piece = await asyncio.to_thread(expanding.read, size_bytes)
        held.give_back(size_bytes - len(piece))
        return piece

    def told_bytes(self, request: Request, held: InFlightBody) -> int | None:
        """The body's size by its Content-Length, if it has one. Raises `TooLarge`."""
        text = request.headers.get("content-length")
        if text is None or not text.isdecimal():
            return None
        if int(text) > held.limit_bytes:
            raise _too_large("the body is", held.limit_bytes)
        return int(text)

    def admit_chunk(self, held: InFlightBody, size_bytes: int) -> None:
        """Count a chunk of a body that is not compressed, or not undone yet. Raises `TooLarge`, `Overloaded`."""
        held.grow(size_bytes)
        if held.bytes_held > held.limit_bytes:
            raise _too_large("the body is", held.limit_bytes)

    def too_slow(self) -> BodyTimeout:
        return BodyTimeout(f"the body did not arrive within {self.timeout_s:g} s: send it faster, or less of it")

    async def _receive_all(self, receive: Receive, held: InFlightBody, told_bytes: int | None) -> Body:
        arriving: ArrivingBody | None = None
        while (message := await receive())["type"] == "http.request":
            chunk: bytes = message.get("body", b"")
            self.admit_chunk(held, len(chunk))
            more = message.get("more_body", False)
            if arriving is None:
                if not more:
                    return chunk
                arriving = held.arriving(told_bytes)
            arriving.add(chunk)
            if not more:
                return arriving.whole()
        raise ClientGone("the client left before its body was complete")


def _too_large(what: str, limit_bytes: int) -> TooLarge:
    return TooLarge(
        f"{what} more than {limit_bytes} bytes: send fewer records a request, or raise {LIMIT_NAME}",
        limit_name=LIMIT_NAME,
        limit_bytes=limit_bytes,
    )
