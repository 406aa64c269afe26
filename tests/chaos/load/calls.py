"""One call to a broker over plain HTTP, and the meaning of its answer for the client.

`docs/http-api.md` says which error codes promise that nothing was taken. After any other failure the outcome is
unknown, unless no connection was made.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pyarrow as pa
from tests.chaos.checker.history import Outcome

CALL_S_MAX = 20.0
ARROW = "application/vnd.apache.arrow.stream"
NOTHING_TAKEN = frozenset({"overloaded", "not_leader", "leader_unknown"})
CONFLICT = "offset_conflict"
OUT_OF_RANGE = "out_of_range"
NOT_CONNECTED = "not_connected"
BROKEN = "broken"
NO_JSON = "no_json"
RETRIED = frozenset({"unavailable", "fenced", "request_timeout", NOT_CONNECTED, BROKEN}) | NOTHING_TAKEN
"""After these a client continues. Any other refusal fails the run, even during a fault."""


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
    def outcome(self) -> Outcome:
        """The outcome for the history."""
        if self.ok:
            return Outcome.OK
        if self.code == CONFLICT:
            return Outcome.CONFLICT
        if self.code == OUT_OF_RANGE:
            return Outcome.OUT_OF_RANGE
        return Outcome.FAIL if self.code in NOTHING_TAKEN or self.code == NOT_CONNECTED else Outcome.UNKNOWN

    @property
    def expected(self) -> bool:
        return self.ok or self.code in RETRIED or self.code in (CONFLICT, OUT_OF_RANGE)


class Caller:
    """Calls brokers by their addresses."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        return await self.call("POST", url, body, headers)

    async def get(self, url: str) -> Answer:
        return await self.call("GET", url, None, {"Accept": "application/json"})

    async def get_arrow(self, url: str) -> Answer:
        """A fetch whose records come as Arrow. The result has the form of the JSON answer."""
        return await self.call("GET", url, None, {"Accept": ARROW})

    async def events(self, url: str, last_event_id: str) -> AsyncGenerator[Sequence[Mapping[str, Any]] | Answer]:
        """The records of an event stream as they arrive. If the stream is refused, breaks or ends with a problem, the
        failure comes last; if it ends normally, or has lasted `CALL_S_MAX`, there is none."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_event_id} if last_event_id else {})}
        start, broker = time.monotonic(), _broker(url)
        try:
            async with self._session.get(url, headers=headers) as response:
                if response.status != 200:
                    yield _answer(response.status, await response.read(), start, broker)
                    return
                async for whole in _events(response.content):
                    if records := [record for event in whole for record in _data_of(event, b"record")]:
                        yield records
                    for problem in (each for event in whole for each in _data_of(event, b"problem")):
                        yield Answer(200, str(problem.get("code")), start, time.monotonic(), problem, broker)
        except TimeoutError:
            if time.monotonic() - start < CALL_S_MAX:
                yield Answer(0, NOT_CONNECTED, start, time.monotonic(), broker=broker)
        except aiohttp.ClientConnectorError:
            yield Answer(0, NOT_CONNECTED, start, time.monotonic(), broker=broker)
        except aiohttp.ClientError as error:
            yield Answer(0, BROKEN, start, time.monotonic(), {"detail": repr(error)}, broker)

    async def call(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Send any request."""
        start = time.monotonic()
        broker = _broker(url)
        try:
            async with self._session.request(method, url, data=body, headers=headers) as response:
                content = await response.read()
                status, told = response.status, response.headers
        except aiohttp.ClientConnectorError:
            return Answer(0, NOT_CONNECTED, start, time.monotonic(), broker=broker)
        except (aiohttp.ClientError, TimeoutError) as error:
            return Answer(0, BROKEN, start, time.monotonic(), {"detail": repr(error)}, broker)
        if status == 200 and told.get("Content-Type") == ARROW:
            return Answer(status, "", start, time.monotonic(), _arrow_body(content, told), broker)
        return _answer(status, content, start, broker)


def _arrow_body(content: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
    with pa.ipc.open_stream(content) as stream:
        table = stream.read_all()
    rows = table.select(["offset", "key", "value"]).to_pylist()
    records = [{name: _decoded(value) for name, value in row.items()} for row in rows]
    watermark, start = headers["Tidelog-High-Watermark"], headers["Tidelog-Log-Start-Offset"]
    return {
        "records": records,
        "next_offset": int(headers["Tidelog-Next-Offset"]),
        "high_watermark": int(watermark),
        "log_start_offset": int(start),
    }


def _decoded(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _broker(url: str) -> str:
    return url.split("/", 3)[2]


def _answer(status: int, content: bytes, start: float, broker: str) -> Answer:
    told = _told(content)
    code = "" if status < 300 and told.get("code") != NO_JSON else str(told.get("code", "without a code"))
    return Answer(status, code, start, time.monotonic(), told, broker)


async def _events(content: aiohttp.StreamReader) -> AsyncGenerator[Sequence[bytes]]:
    """The events of a stream; those that arrive together come together."""
    rest = b""
    async for piece in content.iter_any():
        *whole, rest = (rest + piece).split(b"\n\n")
        yield whole


def _told(content: bytes) -> Mapping[str, Any]:
    """The JSON object of an answer; if there is none, the beginning of the answer for the report."""
    try:
        told = json.loads(content) if content else {}
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {"code": NO_JSON, "detail": repr(content[:200])}


def _data_of(event: bytes, kind: bytes) -> Iterator[Mapping[str, Any]]:
    """The data of an event of `kind`; None for a comment or another kind. An event without a kind is a record."""
    lines = event.split(b"\n")
    named = next((line[6:].strip() for line in lines if line.startswith(b"event:")), b"record")
    if named == kind:
        yield from (json.loads(line[5:]) for line in lines if line.startswith(b"data:"))


def open_session() -> aiohttp.ClientSession:
    """Without a limit on connections: a paused broker must not starve the clients of another."""
    timeout = aiohttp.ClientTimeout(total=CALL_S_MAX, sock_connect=5.0)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
