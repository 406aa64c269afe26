"""An answer without an end: sent piece by piece until the client leaves, the broker drains or its source is done."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.services.http.answers.event_answer import encode_problem_event
from tidelog.services.http.connections import Connections, Draining
from tidelog.services.http.media import Media
from tidelog.services.http.problems import ClientGone, problem_of
from tidelog.storage.errors import LeaderUnknown, NotLeader, TidelogError

logger = logging.getLogger(__name__)


class StreamAnswer(Response):
    """Sends `pieces` as they come. The generator is closed before the answer ends, whatever ends it."""

    def __init__(self, connections: Connections, media: Media, pieces: AsyncGenerator[bytes]) -> None:
        super().__init__(headers={"cache-control": "no-store"}, media_type=media.value)
        del self.headers["content-length"]
        self._connections = connections
        self._media = media
        self._pieces = pieces

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._connections.hold(receive, self._send_all(send))
        except ClientGone:
            return
        except Draining:
            pass  # ended as a whole answer; the client goes on elsewhere from the last id it has
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (NotLeader, LeaderUnknown) as error:
            logger.info("a stream ends, to be resumed from its last id: %s", error)
        except TidelogError as error:
            logger.warning("a stream ended early: %s", error)
            if self._media is Media.EVENTS:
                problem = encode_problem_event(problem_of(error))
                await send({"type": "http.response.body", "body": problem, "more_body": True})
