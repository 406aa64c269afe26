"""Passes on a peer's answer as it arrives, without decoding or collecting it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.services.http.forwarding.leader_watch import LeaderWatch
from tidelog.services.http.listener.waiting_requests import Draining, WaitingRequests
from tidelog.services.http.media import Media
from tidelog.services.peers.pool import PeerAnswer
from tidelog.storage.errors import Overloaded, Unavailable
from tidelog.wire.errors import ClientGone

logger = logging.getLogger(__name__)


class ForwardedAnswer(Response):
    """Sends the pieces of `answer`. If the client leaves a stream, the call at the peer ends.

    If the peer dies, or is replaced and falls silent (`watch`), an event stream ends regularly, and the client resumes
    from its last id. Any other answer is left unfinished, so that no client takes a part for the whole."""

    def __init__(
        self,
        waiting: WaitingRequests,
        answer: PeerAnswer,
        headers: Sequence[tuple[bytes, bytes]],
        watch: LeaderWatch,
    ) -> None:
        super().__init__(status_code=answer.status)
        self.raw_headers = list(headers)
        self._waiting = waiting
        self._answer = answer
        self._watch = watch
        self._resumable = answer.headers.get("Content-Type", "").startswith(Media.EVENTS.value)

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._resumable:
                await self._waiting.hold(receive, self._send_all(send))
            else:
                await self._send_all(send)  # bounded by the time of a fetch, even if the client leaves
        except ClientGone:
            return
        except Overloaded:  # too many waiting requests; nothing was sent yet
            raise
        except (Draining, Unavailable) as error:
            logger.warning("a peer's answer ended early: %s", str(error) or "the broker is stopping")
            if not self._resumable:
                return
        finally:
            self._answer.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with self._watch if self._resumable else nullcontext():
            async for piece in self._answer.pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
