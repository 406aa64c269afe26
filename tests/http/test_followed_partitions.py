"""A topic of a thousand partitions is followed: ids are bounded, no record is missed, and the event loop stays free."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import httpx
import numpy as np
import pyarrow as pa
import pytest
from tests.attempts import attempts
from tests.http.conftest import SETTINGS, Served
from tests.http.requests import ARROW, EVENTS, NDJSON, arrow_stream, problem
from tests.http.sockets import connected, happens, head
from tests.loop_stalls import watched_loop

from tidelog.services.http.v1 import follow_routes, followed_events
from tidelog.services.http.v1.topic_position import parse_position_text
from tidelog.services.settings.settings import Settings

PARTITIONS = 1_000
EACH = 10
ALL = "/v1/topics/wide/records"
HELD_S_MAX = 0.04
"""CPU time of one turn of the event loop; 0.01 today."""


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, request_max_bytes=4 << 20, request_max_records=PARTITIONS * EACH)


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    name: str
    event_id: str
    data: dict[str, int]


async def produce(live: httpx.AsyncClient, each: int) -> None:
    """Send `each` records of 40 bytes to every partition."""
    count = PARTITIONS * each
    table = pa.table(
        {
            "value": pa.array([b"x" * 40] * count, pa.binary()),
            "partition": pa.array(np.arange(count) % PARTITIONS, pa.int32()),
        }
    )
    answer = await live.post(ALL, content=arrow_stream(table), headers={"content-type": ARROW}, timeout=60)
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def wide(live: httpx.AsyncClient) -> httpx.AsyncClient:
    answer = await live.post("/v1/topics", json={"name": "wide", "partitions": PARTITIONS}, timeout=60)
    assert answer.status_code == 201, answer.text
    await produce(live, EACH)
    return live


def parse_events(raw: str) -> Iterator[Event]:
    for block in raw.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in fields:
            yield Event(fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]))


async def stream(live: httpx.AsyncClient, last_id: str = "") -> AsyncIterator[str]:
    headers = {"accept": EVENTS, **({"last-event-id": last_id} if last_id else {})}
    async with live.stream("GET", f"{ALL}?offset=earliest", headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        async for text in answer.aiter_text():
            yield text


async def test_ids_cost_little_the_loop_is_free_and_a_resumed_stream_has_all(
    wide: httpx.AsyncClient, served: Served
) -> None:
    half = PARTITIONS * EACH // 2
    for attempt in attempts():
        pieces, came = [], 0
        with attempt:
            async with watched_loop(HELD_S_MAX):
                async for text in stream(wide):
                    pieces.append(text)
                    came += text.count("data: ")  # of this piece only: the client shares the loop that is watched
                    if came > half:
                        break
    raw = "".join(pieces)
    whole = raw[: raw.rfind("\n\n") + 2]
    first = list(parse_events(whole))
    ids = [event.event_id for event in first if event.event_id]
    assert sum(map(len, ids)) < len(whole) / 3
    assert max(map(len, ids)) < 8_000
    resumed = ""
    covered = parse_position_text(ids[-1], "id")
    left = PARTITIONS * EACH - sum(covered.values())
    async for text in stream(wide, ids[-1]):
        resumed += text
        if resumed.count("data: ") >= left and resumed.endswith("\n\n"):
            break
    records = [event for event in (*first, *parse_events(resumed)) if event.name == "message"]
    seen = Counter((event.data["partition"], event.data["offset"]) for event in records)
    assert set(seen) == {(partition, offset) for partition in range(PARTITIONS) for offset in range(EACH)}
    repeated = sum(count - 1 for count in seen.values())
    assert repeated <= whole.rpartition("\nid: ")[2].count("data: ")
    await happens(lambda: served.service.waiting.count == 0)


async def test_a_commit_to_all_partitions_does_not_hold_the_loop(wide: httpx.AsyncClient, served: Served) -> None:
    async with connected(served) as wire:
        await wire.send(head("GET", ALL, accept=EVENTS))
        await wire.until(b"\r\n\r\n")
        await happens(lambda: len(asyncio.all_tasks()) > PARTITIONS)
        for attempt in attempts():
            received = b""
            with attempt:
                async with watched_loop(HELD_S_MAX):
                    await produce(wide, 1)
                    while received.count(b'data: {"offset"') < PARTITIONS:
                        received += await wire.until(b"\n\n")


async def test_records_without_an_id_are_covered_soon(wide: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_events, "ID_EVERY_S", 0.05)
    raw = ""
    async for text in stream(wide):
        raw += text
        if raw.count('data: {"offset"') == PARTITIONS * EACH and raw.endswith("\n\n"):
            last = [event.event_id for event in parse_events(raw) if event.event_id][-1]
            if set(parse_position_text(last, "id").values()) == {EACH}:
                break
    assert len(parse_position_text(last, "id")) == PARTITIONS


async def test_chosen_partitions_are_followed_alone(wide: httpx.AsyncClient) -> None:
    answer = await wide.get(f"{ALL}?offset=8&partitions=1-2,7&wait_ms=0", headers={"accept": NDJSON})
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert sorted((record["partition"], record["offset"]) for record in records) == [
        (1, 8), (1, 9), (2, 8), (2, 9), (7, 8), (7, 9)
    ]  # fmt: skip
    assert answer.headers["tidelog-position"] == "1:8,2:8,7:8"
    for wrong in ("", "a", "2-1", "1,", "0-999999"):
        problem(await wide.get(f"{ALL}?partitions={wrong}", headers={"accept": NDJSON}), 400, "invalid")
    problem(await wide.get(f"{ALL}?partitions=1000", headers={"accept": NDJSON}), 404, "not_found")


async def test_more_partitions_than_a_position_may_hold_are_refused_with_what_to_do(
    wide: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_routes, "POSITION_PARTITIONS_MAX", PARTITIONS - 1)
    refused = await wide.get(ALL, headers={"accept": EVENTS})
    assert "?partitions=0-998" in problem(refused, 422, "invalid")["detail"]
    refused = await wide.get(f"{ALL}?positions=true", headers={"accept": NDJSON})
    assert problem(refused, 422, "invalid")["field"] == "partitions"
