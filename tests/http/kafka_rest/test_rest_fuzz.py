"""Damaged bodies, paths, queries and headers are accepted or refused in this interface's form, and never answered 500
(inv. 10)."""

from __future__ import annotations

import json
import random

import httpx
import pytest
from tests.http.kafka_rest.instance_calls import ONE, create, done, parts
from tests.http.kafka_rest.rest import BINARY, JSON, MANAGEMENT

REQUESTS = 500
NASTY = (
    b"\0",
    b"\xff",
    b"\x80",
    b'"',
    b"\\",
    b"\n",
    b"{",
    b"[",
    b"]",
    b"}",
    b"\\ud800",
    b"1e999",
    b"-",
    b"null",
    b"\xed\xa0\x80",
)
BODIES: dict[str, object] = {
    "/topics/t": {"records": [{"key": "a", "value": {"n": 1}, "partition": 0}, {"value": "AAAA"}]},
    "/topics/t/partitions/0": {
        "records": [{"value": "AAAA", "timestamp": 5, "headers": [{"key": "h", "value": "AA=="}]}]
    },
    "/consumers/g": {"name": "n", "format": "json", "auto.offset.reset": "latest", "fetch.min.bytes": "1"},
    f"{ONE}/subscription": {"topics": ["t"], "topic_pattern": "t.*"},
    f"{ONE}/assignments": parts(0, 1),
    f"{ONE}/positions": {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]},
    f"{ONE}/positions/end": parts(0),
    f"{ONE}/offsets": {"offsets": [{"topic": "t", "partition": "0", "offset": "1", "metadata": "m"}]},
    "/v3/clusters/tidelog/topics/t/records": {"partition_id": 0, "value": {"type": "JSON", "data": {"a": [1]}}},
}
READS = (
    "/topics/t/partitions/0/records?offset=0&timeout=0&max_bytes=10",
    f"{ONE}/records?timeout=0&max_bytes=10",
    f"{ONE}/offsets",
    f"{ONE}/assignments",
    "/topics/t/partitions/0/offsets",
    "/v3/clusters/tidelog/topics/t/partitions/0",
)


def damaged(draw: random.Random, body: bytes) -> bytes:
    for _ in range(draw.randrange(4)):
        place = draw.randrange(len(body) + 1)
        match draw.randrange(4):
            case 0:
                body = body[:place] + draw.choice(NASTY) + body[place:]
            case 1:
                body = body[:place] + body[place + draw.randrange(1, 8) :]
            case 2:
                body = body[:place]
            case _:
                body = body[:place] + body[: draw.randrange(40)] + body[place:]
    return body


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_request_is_answered_500(client: httpx.AsyncClient, seed: int) -> None:
    draw = random.Random(seed)
    await client.post("/v1/topics", json={"name": "t", "partitions": 2})
    await create(client)
    await done(client, f"{ONE}/assignments", parts(0, 1))
    statuses: dict[int, int] = {}
    for _ in range(REQUESTS):
        headers = {"content-type": draw.choice((JSON, BINARY, MANAGEMENT, "application/json", "x/y")), "accept": "*/*"}
        if draw.random() < 0.3:
            path = damaged(draw, draw.choice(READS).encode()).decode("latin-1").replace("#", "")
            path = "/" + path.lstrip("/")
            answer = await client.request("GET", httpx.URL("http://localhost").join(_safe(path)), headers=headers)
        else:
            path = draw.choice(list(BODIES))
            body = damaged(draw, json.dumps(BODIES[path]).encode())
            answer = await client.post(path, content=body, headers=headers)
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, (path, answer.text)
        if answer.status_code >= 400 and "error_code" in answer.text:
            assert answer.json().keys() == {"error_code", "message"}
    assert {200, 204, 400, 404, 415, 422} <= statuses.keys()


def _safe(path: str) -> str:
    """`path` with the characters that no client sends as they are percent-encoded."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "/?&=-._~" else f"%{ord(c):02X}" for c in path)
