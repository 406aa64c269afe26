"""Sends an answer piece by piece until its source is complete, the client leaves, or the stream is cut.

A cut ends the answer before its source is complete: the broker stops, the leader is lost, records are deleted before
they are read, or an error occurs.

- Event streams have no end of their own. At a cut the broker sends a last event (`RecordStream.last_piece`) and ends
  the HTTP answer regularly. The client reconnects and continues after the last id.
- JSON lines can be complete, so only a complete answer ends regularly. At a cut the broker closes the connection
  without the terminating chunk, and every HTTP client reports an error (curl: exit code 18).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.services.http.listener.waiting_requests import Draining, WaitingRequests
from tidelog.services.http.media import Media
from tidelog.storage.errors import LeaderUnknown, NotLeader, Overloaded, TidelogError, Unavailable
from tidelog.wire.errors import ClientGone

RETRY_AFTER_S = 1.0

logger = logging.getLogger(__name__)


class RecordStream(Protocol):
    """The source of a `StreamAnswer`."""

    @property
    def media(self) -> Media:
        """EVENTS or NDJSON."""
        ...

    def pieces(self) -> AsyncGenerator[bytes]:
        """The pieces to send. The caller asks for the next piece when it has sent the previous one."""
        ...

    def last_piece(self, error: TidelogError) -> bytes:
        """The piece to send before a cut by `error`, with the position after all that was sent. May be empty."""
        ...


class StreamAnswer(Response):
    """Sends `stream`, and closes its generator before the answer ends."""

    def __init__(
        self, waiting: WaitingRequests, stream: RecordStream, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", **(headers or {})}, media_type=stream.media.value)
        del self.headers["content-length"]
        self._waiting = waiting
        self._stream = stream
        self._begun = False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            cut = await self._waiting.hold(receive, self._send_all(send))
        except ClientGone:
            return
        except Draining:
            if not self._begun:
                raise Overloaded(
                    "the broker is stopping: send the request to another broker", retry_after_s=RETRY_AFTER_S
                ) from None
            cut = Unavailable("the broker is stopping: continue from this position at another broker")
        if cut and (piece := self._stream.last_piece(cut)):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if not cut or self._stream.media is Media.EVENTS:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> TidelogError | None:
        """Send the head and all pieces. Returns the error that cut the stream; None if it is complete."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._begun = True
        try:
            async with aclosing(self._stream.pieces()) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (NotLeader, LeaderUnknown) as error:
            logger.info("a stream was cut; its client can resume from its position: %s", error)
            return error
        except TidelogError as error:
            logger.warning("a stream was cut: %s", error)
            return error
        return None
