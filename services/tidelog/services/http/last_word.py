"""The answer of a request that a stopping broker did not get to answer.

A server that stops gives requests a while and then cancels what is left. Its own word for those is a bare 500, which
tells a client neither that it may go elsewhere nor what became of its records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.storage.errors import Unavailable

Teller = Callable[[Request, Exception], Response]


class LastWord:
    """`inner`, whose requests end with `Unavailable` (outcome unknown) if they are cancelled, before they began to
    answer, while the broker is `stopping`."""

    def __init__(self, inner: ASGIApp, stopping: Callable[[], bool], tell: Teller) -> None:
        self._inner = inner
        self._stopping = stopping
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._inner(scope, receive, watched)
        except asyncio.CancelledError:
            if begun or not self._stopping():
                raise
            error = Unavailable("the broker stopped before it could answer: the outcome is unknown, ask another")
            await self._tell(Request(scope), error)(scope, receive, send)
