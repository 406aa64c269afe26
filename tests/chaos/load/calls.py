"""One call to a broker over plain HTTP, and what it means for whoever made it.

Which of an error's codes promise that nothing was taken is the interface's word (`docs/http-api.md`). Of everything
else that is no success the outcome is unknown, but of a connection that never came to be.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

CALL_S_MAX = 20.0
NOTHING_TAKEN = frozenset({"overloaded", "not_leader", "leader_unknown"})
CONFLICT = "offset_conflict"
OUT_OF_RANGE = "out_of_range"
NOT_CONNECTED = "not_connected"
BROKEN = "broken"
NO_JSON = "no_json"
RETRIED = frozenset({"unavailable", "fenced", "request_timeout", NOT_CONNECTED, BROKEN}) | NOTHING_TAKEN
"""After these a client goes on; any other refusal is no part of a fault and ends in the report."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`code` is empty for a success; `detail` is for the report."""

    status: int
    code: str
    start: float
    end: float
    body: Mapping[str, Any] = field(default_factory=dict)
    broker: str = ""

    @property
    def ok(self) -> bool:
        return not self.code

    @property
    def outcome(self) -> str:
        """As a history tells it."""
        if self.ok:
            return "ok"
        if self.code == CONFLICT:
            return "conflict"
        if self.code == OUT_OF_RANGE:
            return "out_of_range"
        return "fail" if self.code in NOTHING_TAKEN or self.code == NOT_CONNECTED else "unknown"

    @property
    def expected(self) -> bool:
        return self.ok or self.code in RETRIED or self.code in (CONFLICT, OUT_OF_RANGE)


class Caller:
    """Calls brokers by their addresses."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        return await self._call("POST", url, body, headers)

    async def get(self, url: str) -> Answer:
        return await self._call("GET", url, None, {"Accept": "application/json"})

    async def events(self, url: str, last_event_id: str) -> AsyncGenerator[Sequence[Mapping[str, Any]]]:
        """The records of an event stream as they arrive, until it ends, breaks, or has lasted `CALL_S_MAX`."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_event_id} if last_event_id else {})}
        rest = b""
        try:
            async with self._session.get(url, headers=headers) as response:
                if response.status != 200:
                    return
                async for piece in response.content.iter_any():
                    *whole, rest = (rest + piece).split(b"\n\n")
                    records = [record for event in whole for record in _records_in(event)]
                    if records:
                        yield records
        except (aiohttp.ClientError, TimeoutError):
            return

    async def _call(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        start = time.monotonic()
        broker = url.split("/", 3)[2]
        try:
            async with self._session.request(method, url, data=body, headers=headers) as response:
                content = await response.read()
                status = response.status
        except aiohttp.ClientConnectorError:
            return Answer(0, NOT_CONNECTED, start, time.monotonic(), broker=broker)
        except (aiohttp.ClientError, TimeoutError) as error:
            return Answer(0, BROKEN, start, time.monotonic(), {"detail": repr(error)}, broker)
        told = _told(content)
        code = "" if status < 300 and told.get("code") != NO_JSON else str(told.get("code", "without a code"))
        return Answer(status, code, start, time.monotonic(), told, broker)


def _told(content: bytes) -> Mapping[str, Any]:
    """An answer's JSON object; of one that is none, its beginning for the report."""
    try:
        told = json.loads(content) if content else {}
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {"code": NO_JSON, "detail": repr(content[:200])}


def _records_in(event: bytes) -> Iterator[Mapping[str, Any]]:
    """The record of an event; none of a comment, or of an event of another kind."""
    lines = event.split(b"\n")
    if not any(line.startswith(b"event:") and line[6:].strip() != b"record" for line in lines):
        yield from (json.loads(line[5:]) for line in lines if line.startswith(b"data:"))


def open_session() -> aiohttp.ClientSession:
    """Without a bound on connections: a paused broker must not starve the clients of another."""
    timeout = aiohttp.ClientTimeout(total=CALL_S_MAX, sock_connect=5.0)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
