"""Requests and answers of Kafka's REST interface that its tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

MANAGEMENT = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"


def refused(answer: httpx.Response, status: int, code: int) -> str:
    """The message of `answer`, which must be a refusal with that status and code."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body.keys() == {"error_code", "message"}
    assert body["error_code"] == code, body
    assert body["message"]
    message: str = body["message"]
    return message


async def produce(client: httpx.AsyncClient, path: str, body: bytes | str, kind: str = JSON) -> httpx.Response:
    return await client.post(path, content=body, headers={"content-type": kind})


async def placed(client: httpx.AsyncClient, path: str, body: bytes | str, kind: str = JSON) -> list[tuple[int, int]]:
    """The partition and the offset of each record of a produce that must succeed."""
    answer = await produce(client, path, body, kind)
    assert answer.status_code == 200, answer.text
    assert answer.json()["key_schema_id"] is answer.json()["value_schema_id"] is None
    return [(one["partition"], one["offset"]) for one in answer.json()["offsets"]]


async def read(client: httpx.AsyncClient, path: str, kind: str = JSON, **query: int) -> list[dict[str, Any]]:
    """The records of one answer."""
    answer = await client.get(path, params={"timeout": 0, **query}, headers={"accept": kind})
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()
    return records


async def log_values(client: httpx.AsyncClient, topic: str, partition: int) -> Sequence[Any]:
    """The values in the log, as the v1 interface reads them."""
    answer = await client.get(f"/v1/topics/{topic}/partitions/{partition}/records?max_bytes=100000000")
    return [record["value"] for record in answer.json()["records"]]
