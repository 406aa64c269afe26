"""Requests that wait: they wake at the commit, continue where they were, and end with their client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.http.conftest import Served
from tests.http.requests import EVENTS, NDJSON, problem
from tests.http.sockets import connected, happens, head

from tidelog.services.http.v1 import fetch_routes, follow_routes

P0 = "/v1/topics/web/partitions/0/records"
ALL = "/v1/topics/web/records"


async def produce(live: httpx.AsyncClient, *values: str, partition: int = 0) -> None:
    body = {"records": [{"value": value} for value in values]}
    answer = await live.post(f"/v1/topics/web/partitions/{partition}/records", json=body)
    assert answer.status_code == 200, answer.text


def waiters(served: Served) -> int:
    return served.service.waiting.count


@asynccontextmanager
async def events(live: httpx.AsyncClient, path: str, **headers: str) -> AsyncIterator[AsyncIterator[tuple[str, dict]]]:
    """The (id, record) pairs of an event stream."""
    asked = {"accept": EVENTS} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with live.stream("GET", path, headers=asked) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(EVENTS)

        async def pairs() -> AsyncIterator[tuple[str, dict]]:
            event_id = ""
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    event_id = line[4:]
                elif line.startswith("data: "):
                    yield event_id, json.loads(line[6:])

        yield pairs()


async def test_a_long_poll_wakes_at_the_commit(served: Served, live: httpx.AsyncClient) -> None:
    await produce(live, "first")
    waiting = asyncio.ensure_future(live.get(f"{P0}?offset=1&wait_ms=10000"))
    await happens(lambda: waiters(served) == 1)
    await produce(live, "second")
    answer = await waiting
    assert [record["value"] for record in answer.json()["records"]] == ["second"]
    assert waiters(served) == 0


async def test_a_long_poll_without_a_commit_ends_empty(served: Served, live: httpx.AsyncClient) -> None:
    await produce(live, "first")
    answer = await live.get(f"{P0}?offset=latest&wait_ms=20")
    assert (answer.json()["records"], answer.json()["next_offset"]) == ([], 1)


@pytest.mark.parametrize(
    ("path", "accept"), [(f"{P0}?offset=1&wait_ms=60000", "*/*"), (P0, EVENTS), (ALL, EVENTS), (ALL, NDJSON)]
)
async def test_waiting_requests_end_when_their_client_leaves(
    served: Served, live: httpx.AsyncClient, path: str, accept: str
) -> None:
    await produce(live, "first")
    tasks_before = len(asyncio.all_tasks())
    async with connected(served) as wire:
        await wire.send(head("GET", path, accept=accept))
        await happens(lambda: waiters(served) == 1)
    await happens(lambda: waiters(served) == 0)
    await happens(lambda: len(asyncio.all_tasks()) <= tasks_before)


async def test_waiters_are_bounded(served: Served, live: httpx.AsyncClient) -> None:
    await produce(live, "first")
    bound = 8  # nine tenths of connections.max in these tests
    polls = [asyncio.ensure_future(live.get(f"{P0}?offset=1&wait_ms=5000")) for _ in range(bound)]
    await happens(lambda: waiters(served) == bound)
    refused = await live.get(f"{P0}?offset=1&wait_ms=5000")
    problem(refused, 503, "overloaded")
    assert refused.headers["retry-after"]
    for path in (ALL, P0):
        problem(await live.get(path, headers={"accept": EVENTS}), 503, "overloaded")
    assert (await live.get(P0)).status_code == 200
    await produce(live, "second")
    assert {answer.status_code for answer in await asyncio.gather(*polls)} == {200}


async def test_events_continue_with_new_records_and_resume_after_an_id(served: Served, live: httpx.AsyncClient) -> None:
    await produce(live, "a", "b")
    async with events(live, P0) as stream:
        assert [(await anext(stream))[0] for _ in range(2)] == ["0", "1"]
        await produce(live, "c\nd")
        event_id, record = await anext(stream)
        assert (event_id, record["value"]) == ("2", "c\nd")
    async with events(live, P0, last_event_id="1") as stream:
        assert (await anext(stream))[0] == "2"
    await happens(lambda: waiters(served) == 0)


async def test_an_event_stream_beyond_the_log_is_refused_before_it_begins(
    served: Served, live: httpx.AsyncClient
) -> None:
    await produce(live, "a")
    problem(await live.get(f"{P0}?offset=5", headers={"accept": EVENTS}), 416, "out_of_range")
    problem(await live.get(P0, headers={"accept": EVENTS, "last-event-id": "5"}), 416, "out_of_range")
    problem(await live.get(P0, headers={"accept": EVENTS, "last-event-id": "x"}), 400, "invalid")
    problem(await live.get(f"{ALL}?offset=5", headers={"accept": EVENTS}), 416, "out_of_range")
    problem(await live.get(ALL, headers={"accept": EVENTS, "last-event-id": "0:5"}), 416, "out_of_range")
    for wrong in ("5", "0:", "0:1,", "x:1", "0:1;1:1", "-1:0"):
        problem(await live.get(ALL, headers={"accept": EVENTS, "last-event-id": wrong}), 400, "invalid")


async def test_all_partitions_are_followed_and_resumed(served: Served, live: httpx.AsyncClient) -> None:
    await produce(live, "a")
    await produce(live, "b", partition=1)
    async with events(live, f"{ALL}?offset=earliest") as stream:
        seen = [await anext(stream) for _ in range(2)]
        assert {(record["partition"], record["value"]) for _, record in seen} == {(0, "a"), (1, "b")}
        assert seen[-1][0] == "0:1,1:1"
        await produce(live, "c", partition=1)
        assert (await anext(stream))[0] == "0:1,1:2"
    async with events(live, ALL, last_event_id="0:0,1:1") as stream:
        resumed = {(record["partition"], record["offset"]) for _, record in [await anext(stream) for _ in range(2)]}
    assert resumed == {(0, 0), (1, 1)}
    await happens(lambda: waiters(served) == 0)


async def test_a_follow_begins_at_the_end_by_default(served: Served, live: httpx.AsyncClient) -> None:
    await produce(live, "old")
    async with events(live, ALL) as stream:
        await happens(lambda: waiters(served) == 1)
        await produce(live, "new")
        assert (await anext(stream))[1]["value"] == "new"


async def test_a_partition_that_is_added_later_is_followed_from_its_beginning(
    served: Served, live: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 20)
    await produce(live, "a")
    async with events(live, ALL) as stream:
        await happens(lambda: waiters(served) == 1)
        await live.patch("/v1/topics/web", json={"partitions": 3})
        await produce(live, "b", partition=2)
        assert (await anext(stream))[1]["partition"] == 2


async def test_an_idle_stream_beats(served: Served, live: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_routes, "HEARTBEAT_MS", 20)
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 20)
    await produce(live, "a")
    for path in (f"{P0}?offset=latest", ALL):
        async with connected(served) as wire:
            await wire.send(head("GET", path, accept=EVENTS))
            await wire.until(b"\r\n\r\n")
            for _ in range(3):
                assert b": waiting" in await wire.until(b"\n\n")


async def test_lines_end_when_they_have_caught_up_and_waited(served: Served, live: httpx.AsyncClient) -> None:
    await produce(live, "a", "b")
    await produce(live, "c", partition=1)
    for wait_ms in (0, 20):
        answer = await live.get(f"{ALL}?offset=earliest&wait_ms={wait_ms}", headers={"accept": NDJSON})
        assert answer.headers["content-type"] == NDJSON
        records = [json.loads(line) for line in answer.text.splitlines()]
        assert sorted((record["partition"], record["value"]) for record in records) == [(0, "a"), (0, "b"), (1, "c")]
    refused = await live.get(f"{ALL}?wait_ms=5", headers={"accept": EVENTS})
    assert problem(refused, 400, "invalid")["field"] == "wait_ms"


@pytest.mark.parametrize("path", [f"{P0}?offset=latest", ALL])
async def test_a_stream_whose_topic_is_deleted_says_so_and_ends(
    served: Served, live: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(fetch_routes, "HEARTBEAT_MS", 20)
    monkeypatch.setattr(follow_routes, "HEARTBEAT_MS", 20)
    await produce(live, "a")
    async with connected(served) as wire:
        await wire.send(head("GET", path, accept=EVENTS))
        await wire.until(b": waiting")
        await live.delete("/v1/topics/web")
        ended = await wire.until(b"0\r\n\r\n")
    assert b"event: problem" in ended
    assert b"not_found" in ended


async def test_a_draining_broker_ends_polls_and_event_streams_as_whole_answers(
    served: Served, live: httpx.AsyncClient
) -> None:
    await produce(live, "a")
    poll = asyncio.ensure_future(live.get(f"{P0}?offset=1&wait_ms=60000"))
    async with connected(served) as wire:
        await wire.send(head("GET", P0, accept=EVENTS))
        await wire.until(b"data:")
        await happens(lambda: waiters(served) == 2)
        served.service.waiting.drain()
        assert (await wire.until(b"0\r\n\r\n")).endswith(b"0\r\n\r\n")
    assert (await poll).json()["records"] == []
    problem(await live.get("/readyz"), 503, "unavailable")
