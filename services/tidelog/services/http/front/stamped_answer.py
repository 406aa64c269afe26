"""The way of an answer out: each gets the headers that the front has for it, and the front sees when it began."""

from __future__ import annotations

from starlette.types import Message, Send

from tidelog.services.http.front.origin_check import Headers


class StampedAnswer:
    """`send` of the server, with `headers` added to the head of the answer. `status` is 0 until the answer began."""

    __slots__ = ("_headers", "_send", "status")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers]
        await self._send(message)
