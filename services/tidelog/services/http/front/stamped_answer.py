"""Adds the front's headers to the head of an answer, and measures it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Message, Send

from tidelog.services.http.front.origin_check import Headers


class StampedAnswer:
    """The `send` of the server with `headers` added. Calls `began` with the status when the answer begins; `status` is
    0 until then."""

    __slots__ = ("_began", "_headers", "_send", "status")

    def __init__(self, send: Send, headers: Headers, began: Callable[[int], None]) -> None:
        self._send = send
        self._headers = headers
        self._began = began
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers]
            self._began(self.status)
        await self._send(message)
