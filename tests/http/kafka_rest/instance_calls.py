"""The calls on consumer instances that tests share."""

from __future__ import annotations

import json
from typing import Any

import httpx
from tests.http.kafka_rest.rest import JSON, MANAGEMENT

ONE = "/consumers/g/instances/i"
OFFSETS = f"{ONE}/offsets"


async def create(client: httpx.AsyncClient, group: str = "g", **config: Any) -> str:
    """The path of a new instance; named ``i``, of the format json, reading from the start, unless `config` says."""
    body = {"name": "i", "format": "json", "auto.offset.reset": "earliest", **config}
    answer = await client.post(f"/consumers/{group}", json=body, headers={"content-type": MANAGEMENT})
    assert answer.status_code == 200, answer.text
    created = answer.json()
    assert created["base_uri"] == f"http://localhost/consumers/{group}/instances/{created['instance_id']}"
    assert answer.headers["content-type"] == MANAGEMENT
    return f"/consumers/{group}/instances/{created['instance_id']}"


async def post(client: httpx.AsyncClient, path: str, body: object) -> httpx.Response:
    return await client.post(path, content=json.dumps(body), headers={"content-type": MANAGEMENT})


async def done(client: httpx.AsyncClient, path: str, body: object) -> None:
    answer = await post(client, path, body)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


async def get(client: httpx.AsyncClient, path: str, body: object | None = None) -> Any:
    content = None if body is None else json.dumps(body)
    answer = await client.request("GET", path, content=content, headers={"content-type": MANAGEMENT})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def poll(client: httpx.AsyncClient, path: str = ONE, kind: str = JSON, **query: int) -> list[dict[str, Any]]:
    answer = await client.get(f"{path}/records", params={"timeout": 0, **query}, headers={"accept": kind})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    records: list[dict[str, Any]] = answer.json()
    return records


def values(records: list[dict[str, Any]]) -> list[Any]:
    return [record["value"] for record in records]


def parts(*numbers: int, topic: str = "t") -> dict[str, Any]:
    return {"partitions": [{"topic": topic, "partition": number} for number in numbers]}
