"""``POST /v1/fetch``: many partitions as JSON, JSON lines and Arrow; one wait; misuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.http.conftest import Served
from tests.http.requests import ARROW, NDJSON, problem
from tests.http.sockets import connected, happens

from tidelog.services.http.v1.part_routes import PARTS_MAX
from tidelog.storage.part_records import by_partition

FETCH = "/v1/fetch"


def part(number: int, offset: int | str = 0, *, topic: str = "web", **bounds: int) -> dict[str, Any]:
    return {"topic": topic, "partition": number, "offset": offset, **bounds}


async def produce(client: httpx.AsyncClient, number: int, *values: str, topic: str = "web") -> None:
    body = {"records": [{"value": value} for value in values]}
    answer = await client.post(f"/v1/topics/{topic}/partitions/{number}/records", json=body)
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def two(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Topics `web` and `log` of two partitions with two records each."""
    for topic in ("web", "log"):
        await client.post("/v1/topics", json={"name": topic, "partitions": 2})
        for number in range(2):
            await produce(client, number, f"{topic}{number}a", f"{topic}{number}b", topic=topic)
    return client


EVERY = [part(1), part(0, 1), part(0, topic="log"), part(1, "latest", topic="log")]


def as_json(answer: httpx.Response) -> tuple[list[Any], list[Any]]:
    document = answer.json()
    return document["partitions"], document["records"]


def as_lines(answer: httpx.Response) -> tuple[list[Any], list[Any]]:
    *records, last = map(json.loads, answer.text.splitlines())
    return last["partitions"], records


def as_arrow(answer: httpx.Response) -> tuple[list[Any], list[Any]]:
    with pa.ipc.open_stream(answer.content) as reader:
        state = json.loads(reader.schema.metadata[b"tidelog"])
        parts = [each for batch in reader for each in by_partition(batch)]
    records = [
        {"topic": each.topic, "partition": each.partition, "offset": row["offset"], "value": row["value"].decode()}
        for each in parts
        for batch in each.batches
        for row in batch.to_pylist()
    ]
    return state["partitions"], records


@pytest.mark.parametrize(("media", "read"), [(None, as_json), (NDJSON, as_lines), (ARROW, as_arrow)])
async def test_many_partitions_in_one_answer(
    two: httpx.AsyncClient, media: str | None, read: Callable[[httpx.Response], tuple[list[Any], list[Any]]]
) -> None:
    answer = await two.post(FETCH, json={"partitions": EVERY}, headers={"accept": media} if media else {})
    assert answer.status_code == 200, answer.text
    partitions, records = read(answer)
    assert [(p["topic"], p["partition"], p["next_offset"], p["high_watermark"]) for p in partitions] == [
        ("web", 1, 2, 2),
        ("web", 0, 2, 2),
        ("log", 0, 2, 2),
        ("log", 1, 2, 2),
    ]
    assert [(r["topic"], r["partition"], r["offset"], r["value"]) for r in records] == [
        ("web", 1, 0, "web1a"),
        ("web", 1, 1, "web1b"),
        ("web", 0, 1, "web0b"),
        ("log", 0, 0, "log0a"),
        ("log", 0, 1, "log0b"),
    ]


@pytest.mark.parametrize(("media", "read"), [(None, as_json), (NDJSON, as_lines), (ARROW, as_arrow)])
async def test_a_large_answer_is_complete(
    client: httpx.AsyncClient, media: str | None, read: Callable[[httpx.Response], tuple[list[Any], list[Any]]]
) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 3})
    for number in range(3):
        await produce(client, number, *("x" * 300 for _ in range(3_000)))
    asked = {"partitions": [part(number) for number in range(3)], "max_bytes": 1 << 30}
    answer = await client.post(FETCH, json=asked, headers={"accept": media} if media else {})
    _, records = read(answer)
    assert [(r["partition"], r["offset"]) for r in records] == [(p, n) for p in range(3) for n in range(3_000)]


async def test_keys_and_values_as_base64_and_headers(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "web", "partitions": 1})
    record = {"key": "k", "value": {"base64": "/w=="}, "headers": [{"key": "h", "value": "v"}]}
    await client.post("/v1/topics/web/partitions/0/records", json={"records": [record]})
    plain = (await client.post(FETCH, json={"partitions": [part(0)]})).json()["records"][0]
    assert (plain["key"], plain["value"], plain["headers"]) == ("k", {"base64": "/w=="}, [{"key": "h", "value": "v"}])
    coded = (await client.post(f"{FETCH}?encoding=base64", json={"partitions": [part(0)]})).json()["records"][0]
    assert coded["key"] == {"base64": "aw=="}


async def test_a_partition_that_cannot_be_read_has_a_problem(two: httpx.AsyncClient) -> None:
    asked = [part(0), part(1, 99), part(7), part(0, topic="none"), part(1, "earliest", topic="none")]
    document = (await two.post(FETCH, json={"partitions": asked, "wait_ms": 5_000})).json()
    problems = [state.get("problem", {}).get("code") for state in document["partitions"]]
    assert problems == [None, "out_of_range", "not_found", "not_found", "not_found"]
    assert document["partitions"][1]["problem"]["high_watermark"] == 2
    assert [state["next_offset"] for state in document["partitions"]] == [2, 99, 0, 0, None]
    assert [record["value"] for record in document["records"]] == ["web0a", "web0b"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, None),
        ({"partitions": []}, 422, "partitions"),
        ({"partitions": [part(0), part(1), part(0)]}, 422, "partitions"),
        ({"partitions": [part(n) for n in range(PARTS_MAX + 1)]}, 422, "partitions"),
        ({"partitions": [part(0, -1)]}, 422, "partitions[0].offset"),
        ({"partitions": [part(0, 2**63)]}, 422, "partitions[0].offset"),
        ({"partitions": [part(0), part(1, "soon")]}, 400, "partitions[1].offset"),
        ({"partitions": [part(0, None)]}, 422, "partitions[0].offset"),  # type: ignore[arg-type]
        ({"partitions": [part(-1)]}, 422, "partitions[0].partition"),
        ({"partitions": [part(0)], "wait_ms": -1}, 422, "wait_ms"),
        ({"partitions": [part(0)], "wait": 1}, 422, None),
        ({"partitions": [{**part(0), "max": 1}]}, 422, "partitions[0]"),
    ],
)
async def test_a_request_that_is_not_allowed_is_refused(
    two: httpx.AsyncClient, body: dict[str, Any], status: int, field: str | None
) -> None:
    refusal = problem(await two.post(FETCH, json=body), status, "invalid")
    assert refusal.get("field") == field


async def test_bodies_that_cannot_be_read_are_refused(client: httpx.AsyncClient) -> None:
    json_type = {"content-type": "application/json"}
    problem(await client.post(FETCH, content=b"", headers=json_type), 400, "invalid")
    problem(await client.post(FETCH, content=b"{", headers=json_type), 400, "invalid")
    problem(await client.post(FETCH, content=b"[" * 100_000, headers=json_type), 422, "invalid")
    problem(await client.post(FETCH, content=b"x", headers={"content-type": ARROW}), 415, "unsupported_media_type")
    problem(await client.post(f"{FETCH}?wait_ms=1", json={"partitions": [part(0)]}), 400, "invalid")
    accept = {"accept": "text/event-stream"}
    problem(await client.post(FETCH, json={"partitions": [part(0)]}, headers=accept), 406, "not_acceptable")
    large = b" " * (2 << 20)
    problem(await client.post(FETCH, content=large, headers=json_type), 413, "too_large")


async def test_a_commit_to_any_partition_ends_the_wait(served: Served, live: httpx.AsyncClient) -> None:
    await live.post("/v1/topics", json={"name": "web", "partitions": 20})
    asked = {"partitions": [part(number, "latest") for number in range(20)], "wait_ms": 10_000}
    waiting = asyncio.ensure_future(live.post(FETCH, json=asked))
    await happens(lambda: served.service.waiting.count == 1)
    await happens(lambda: served.service.broker.measurements().waiting_fetches == 1)  # type: ignore[attr-defined]
    await produce(live, 13, "new")
    answer = (await waiting).json()
    assert [(record["partition"], record["value"]) for record in answer["records"]] == [(13, "new")]
    assert served.service.waiting.count == 0


async def test_a_client_that_leaves_ends_its_wait(served: Served, live: httpx.AsyncClient) -> None:
    await live.post("/v1/topics", json={"name": "web", "partitions": 2})
    body = json.dumps({"partitions": [part(0), part(1)], "wait_ms": 10_000}).encode()
    head = f"POST {FETCH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    async with connected(served) as wire:
        await wire.send(f"{head}\r\n\r\n".encode() + body)
        await happens(lambda: served.service.waiting.count == 1)
    await happens(lambda: served.service.waiting.count == 0)
    await happens(lambda: served.service.broker.measurements().waiting_fetches == 0)  # type: ignore[attr-defined]


async def test_a_stopping_broker_answers_a_wait_with_what_there_is(served: Served, live: httpx.AsyncClient) -> None:
    await live.post("/v1/topics", json={"name": "web", "partitions": 2})
    asked = {"partitions": [part(0), part(1)], "wait_ms": 10_000}
    waiting = asyncio.ensure_future(live.post(FETCH, json=asked))
    await happens(lambda: served.service.waiting.count == 1)
    served.server.drain()
    answer = await waiting
    assert answer.status_code == 200
    assert answer.json()["records"] == []
