"""A stream that ends early does not look complete, and its client knows where to continue."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.anybody import ANYBODY
from tests.http.conftest import Served
from tests.http.requests import EVENTS, NDJSON
from tests.http.sockets import Wire, connected, happens, head

from tidelog.services.broker.api.fetch import Fetched, FetchLimits
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.v1 import follow_routes
from tidelog.services.http.v1.followed_lines import FollowedLines, LineOptions
from tidelog.services.http.v1.followed_topic import FollowedTopic
from tidelog.services.runtime.logs import configure_logs
from tidelog.storage.errors import Corrupt, LeaderUnknown, OutOfRange, TidelogError, Unavailable

ALL = "/v1/topics/web/records"
P0 = "/v1/topics/web/partitions/0/records"
END = b"\r\n0\r\n\r\n"
CUTS: list[TidelogError] = [
    OutOfRange("deleted", log_start_offset=9, high_watermark=9),
    LeaderUnknown("nobody leads", retry_after_s=1),
    Corrupt("an object", "is damaged"),
]


@pytest.fixture(autouse=True)
async def _records(live: httpx.AsyncClient) -> None:
    await live.post("/v1/topics", json={"name": "web", "partitions": 2})
    for partition in (0, 1):
        body = {"records": [{"value": str(number)} for number in range(3)]}
        await live.post(f"/v1/topics/web/partitions/{partition}/records", json=body)


async def follow(wire: Wire, query: str = "offset=earliest", accept: str = NDJSON) -> bytes:
    """Follow; return the head of the answer and the first three lines of both partitions."""
    await wire.send(head("GET", f"{ALL}?{query}", accept=accept))
    answer = await wire.until(b"\r\n\r\n")
    for _ in range(6):
        answer += await wire.until(b'"headers":[],"partition":')
    return answer + await wire.until(b"\r\n")


def lines_of(raw: bytes) -> list[bytes]:
    """The lines of a chunked body without chunk headers; only for small chunks."""
    return [line for line in raw.split(b"\n") if line.startswith(b"{")]


async def test_a_follow_is_cut_when_its_broker_stops(served: Served) -> None:
    async with connected(served) as wire:
        await follow(wire)
        served.service.waiting.drain()
        assert not (await wire.closed()).endswith(b"0\r\n\r\n")


async def test_a_follow_is_cut_when_its_topic_is_deleted(
    served: Served, live: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 20)
    async with connected(served) as wire:
        await follow(wire)
        await live.delete("/v1/topics/web")
        assert not (await wire.closed()).endswith(b"0\r\n\r\n")


def failing_at_the_end(broker: LocalBroker, error: Exception) -> Callable[..., object]:
    """A fetch of the broker that fails beyond the first records of partition 1."""
    fetch = broker.fetch

    async def failing(context: RequestContext, topic: str, partition: int, offset: int, limits: FetchLimits) -> Fetched:
        if (partition, offset) == (1, 3):
            raise error
        return await fetch(context, topic, partition, offset, limits)

    return failing


@pytest.mark.parametrize("error", [*CUTS, RuntimeError("a fault")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("query", ["offset=earliest", "offset=earliest&wait_ms=50"])
async def test_a_follow_and_a_copy_are_cut_by_an_error_in_the_middle(
    served: Served, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, error: Exception, query: str
) -> None:
    monkeypatch.setattr(broker, "fetch", failing_at_the_end(broker, error))
    async with connected(served) as wire:
        await follow(wire, query)
        assert not (await wire.closed()).endswith(b"0\r\n\r\n")


async def test_a_complete_copy_ends_regularly(served: Served) -> None:
    async with connected(served) as wire:
        await follow(wire, "offset=earliest&wait_ms=0")
        assert await wire.until(b"0\r\n\r\n") == b"0\r\n\r\n"


async def test_the_position_is_known_at_every_cut(served: Served, live: httpx.AsyncClient) -> None:
    """The head says where the follow begins, and each record has its own offset. Together they say where to
    continue."""
    async with connected(served) as wire:
        answer = await follow(wire)
        served.service.waiting.drain()
        answer += await wire.closed()
    head_lines = answer.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    (began,) = [line.removeprefix("tidelog-position: ") for line in head_lines if line.startswith("tidelog-position")]
    assert began == "0:0,1:0"
    read = {record["partition"]: record["offset"] + 1 for record in map(json.loads, lines_of(answer))}
    assert read == {0: 3, 1: 3}


async def test_position_lines_are_sent_on_request(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 20)
    async with connected(served) as wire:
        answer = await follow(wire, "offset=earliest&positions=true")
        beat = await wire.until(b"}\n")
        served.service.waiting.drain()
        last = lines_of(beat + await wire.closed())[-1]
    assert json.loads(lines_of(answer)[0]) == {"position": "0:0,1:0"}
    cut = json.loads(last)
    assert cut["position"] == "0:3,1:3"
    assert cut["problem"]["code"] == "unavailable"


async def test_a_complete_copy_tells_where_the_next_one_begins(live: httpx.AsyncClient) -> None:
    query = "offset=earliest&wait_ms=0&positions=true"
    first = await live.get(f"{ALL}?{query}", headers={"accept": NDJSON})
    position = json.loads(first.text.splitlines()[-1])["position"]
    assert position == "0:3,1:3"
    await live.post(P0, json={"records": [{"value": "new"}]})
    following = await live.get(f"{ALL}?{query}", headers={"accept": NDJSON, "last-event-id": position})
    records = [json.loads(line) for line in following.text.splitlines() if "offset" in line]
    assert [(record["partition"], record["offset"]) for record in records] == [(0, 3)]


async def test_a_position_may_be_continued_by_what_was_read_since(live: httpx.AsyncClient) -> None:
    headers = {"accept": NDJSON, "last-event-id": "0:0,1:1,0:2"}
    answer = await live.get(f"{ALL}?wait_ms=0", headers=headers)
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert sorted((record["partition"], record["offset"]) for record in records) == [(0, 2), (1, 1), (1, 2)]


async def test_an_idle_follow_beats_with_empty_lines(
    served: Served, live: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 20)
    async with connected(served) as wire:
        await wire.send(head("GET", ALL, accept=NDJSON))
        await wire.until(b"\r\n\r\n")
        for _ in range(3):
            assert await wire.until(b"\r\n\n\r\n") == b"1\r\n\n\r\n"


async def test_a_copy_that_waits_for_long_beats_too(
    served: Served, live: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 20)
    async with connected(served) as wire:
        await wire.send(head("GET", f"{ALL}?wait_ms=60000", accept=NDJSON))
        await wire.until(b"\r\n\r\n")
        assert await wire.until(b"\r\n\n\r\n") == b"1\r\n\n\r\n"


@pytest.mark.parametrize(("path", "event_id"), [(f"{ALL}?offset=earliest", "0:3,1:3"), (f"{P0}?offset=earliest", "2")])
async def test_an_event_stream_whose_broker_stops_ends_with_its_position(
    served: Served, path: str, event_id: str
) -> None:
    async with connected(served) as wire:
        await wire.send(head("GET", path, accept=EVENTS))
        await wire.until(f"id: {event_id}\n".encode())
        await happens(lambda: served.service.waiting.count == 1)
        served.service.waiting.drain()
        ended = await wire.until(b"0\r\n\r\n")
    assert f"event: end\nid: {event_id}\ndata: ".encode() in ended


@pytest.mark.parametrize(("error", "name"), [*zip(CUTS, ("problem", "end", "problem"), strict=True)])
async def test_an_event_stream_that_is_cut_says_why_and_where(
    served: Served, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, error: TidelogError, name: str
) -> None:
    monkeypatch.setattr(broker, "fetch", failing_at_the_end(broker, error))
    async with connected(served) as wire:
        await wire.send(head("GET", f"{ALL}?offset=earliest", accept=EVENTS))
        ended = await wire.until(b"0\r\n\r\n")
    assert f"event: {name}\nid: ".encode() in ended
    last = ended.rpartition(b"\nid: ")[2]
    assert b"1:3" in last.split(b"\n")[0]


async def test_unsent_records_are_not_in_the_position(broker: LocalBroker) -> None:
    """A broker that stops while a page waits for its slow reader drops that page."""
    followed = FollowedTopic(broker, ANYBODY, "web", {0: 0, 1: 3}, FetchLimits(2, 1 << 20, 1_000), beat_s=9)
    lines = FollowedLines(followed, LineOptions(base64=False, bounded=False, positions=True))
    pieces = lines.pieces()
    sent = [await anext(pieces) for _ in range(2)]
    assert b'"offset":1' in sent[1]
    assert b'"offset":2' in await anext(pieces)
    await pieces.aclose()
    cut = json.loads(lines.last_piece(Unavailable("the broker stops")))
    assert cut["position"] == "0:2,1:3"


@pytest.fixture
def _logs_configured(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Logs as `tidelog serve` configures them; afterwards as before."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    level, handlers = root.level, root.handlers[:]
    configure_logs("info", "text")
    root.addHandler(caplog.handler)
    yield
    for one in list(uvicorn.filters):
        uvicorn.removeFilter(one)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_logs_configured")
async def test_a_cut_is_no_error_of_the_broker_in_its_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(served) as wire:
        await follow(wire)
        served.service.waiting.drain()
        await wire.closed()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
