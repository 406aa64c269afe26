"""Keeps a request's body while it is forwarded, so that it can be sent more than once.

Chunks are passed on as they arrive and kept in one buffer, if the size of the body is known. Neither sending the body
nor decoding it here needs a copy. The kept bytes count as a body (`InFlightBody`), so forwarding holds no more memory
than reading. If the body is too large, too slow or incomplete, reading it raises the error; `failure` keeps it for a
caller that sees only a failed request to the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request

from tidelog.services.http.bodies.arriving_body import ArrivingBody
from tidelog.services.http.bodies.body_reading import BodyReader, InFlightBody
from tidelog.storage.errors import TidelogError
from tidelog.storage.object_store import Body
from tidelog.wire.errors import ClientGone

SMALL_BYTES_MAX = 1 << 16


class KeptBody:
    """The body of `request`. Each reader gets all of it; one reader at a time receives."""

    def __init__(self, bodies: BodyReader, request: Request, held: InFlightBody) -> None:
        self.size_bytes = bodies.content_length(request, held)
        self.handed_over = False
        self.failure: TidelogError | None = None
        self._bodies = bodies
        self._receive = request.receive
        self._held = held
        self._chunks: list[Body] = []
        self._arriving: ArrivingBody | None = None
        self._complete = False
        self._turn = asyncio.Lock()
        self._due_at_s = asyncio.get_running_loop().time() + bodies.timeout_s

    async def begun(self) -> bytes | AsyncGenerator[Body]:
        """The body to send: the body itself if it arrived as one small chunk, as most do, otherwise its `pieces`.
        Raises the errors of `whole` that the first chunk shows."""
        if not self._chunks:
            await self._take()
        first = self._chunks[0]
        if self._arriving is None and isinstance(first, bytes) and len(first) <= SMALL_BYTES_MAX:
            self.handed_over = True
            return first
        return self.pieces()

    async def whole(self) -> Body:
        """The complete body. Raises `TooLarge`, `Overloaded`, `BodyTimeout`, `ClientGone`."""
        while not self._complete:
            await self._take()
        return self._chunks[0] if self._arriving is None else self._arriving.whole()

    async def pieces(self) -> AsyncGenerator[Body]:
        """The body from its start, as it arrives. `handed_over` is set before the last piece is yielded: until then no
        broker can have applied the request."""
        self.handed_over = False
        place, given_bytes = 0, 0
        while True:
            while place == len(self._chunks):
                if self._complete:
                    return
                await self._take()
            piece = self._chunks[place]
            place, given_bytes = place + 1, given_bytes + len(piece)
            if given_bytes == self.size_bytes or (self._complete and place == len(self._chunks)):
                self.handed_over = True
            if piece:
                yield piece

    async def _take(self) -> None:
        """Receive and keep one more chunk."""
        async with self._turn:
            if self._complete:
                return
            try:
                await self._receive_chunk()
            except TidelogError as error:
                self.failure = error
                raise

    async def _receive_chunk(self) -> None:
        try:
            async with asyncio.timeout_at(self._due_at_s):
                message = await self._receive()
        except TimeoutError:
            raise self._bodies.too_slow() from None
        if message["type"] != "http.request":
            raise ClientGone("the client closed the connection before its body was complete")
        chunk: bytes = message.get("body", b"")
        self._bodies.admit_chunk(self._held, len(chunk))
        self._complete = not message.get("more_body", False)
        if self._arriving is None and not self._complete:
            self._arriving = self._held.arriving(self.size_bytes)
        self._chunks.append(chunk if self._arriving is None else self._arriving.add(chunk))
