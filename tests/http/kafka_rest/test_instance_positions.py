"""Seeks of consumer instances."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.http.kafka_rest.instance_calls import ONE, create, done, parts, poll, post, values
from tests.http.kafka_rest.rest import placed, refused

pytestmark = pytest.mark.usefixtures("topic")


@pytest.fixture(autouse=True)
async def instance(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/assignments", parts(0, 1))


@pytest.mark.parametrize("slashes", ["/", "//"])
async def test_to_the_beginning_and_to_the_end(client: httpx.AsyncClient, slashes: str) -> None:
    assert len(await poll(client)) == 10
    await done(client, f"{ONE}/positions{slashes}beginning", parts(1))
    assert values(await poll(client)) == [10, 11, 12, 13, 14]
    await done(client, f"{ONE}/positions/beginning", parts(0, 1))
    await done(client, f"{ONE}/positions{slashes}end", parts(1))
    assert values(await poll(client)) == [0, 1, 2, 3, 4]


async def test_to_an_offset_with_metadata(client: httpx.AsyncClient) -> None:
    offsets = [
        {"topic": "t", "partition": 0, "offset": "3", "metadata": "m"},
        {"topic": "t", "partition": "1", "offset": 4},
    ]
    await done(client, f"{ONE}/positions", {"offsets": offsets})
    assert sorted(values(await poll(client))) == [3, 4, 14]


@pytest.mark.parametrize("timestamp", [5_000, "5000", "1970-01-01T00:00:05Z"])
async def test_to_a_time(client: httpx.AsyncClient, timestamp: object) -> None:
    records = [{"value": n, "timestamp": n * 1_000} for n in range(10)]
    await client.post("/v1/topics", json={"name": "times", "partitions": 1})
    await placed(client, "/topics/times", json.dumps({"records": records}))
    await done(client, f"{ONE}/assignments", parts(0, topic="times"))
    times = [{"topic": "times", "partition": 0, "timestamp": timestamp}]
    await done(client, f"{ONE}/positions", {"timestamps": times})
    assert values(await poll(client)) == [5, 6, 7, 8, 9]


async def test_a_partition_that_is_not_assigned_is_refused(client: httpx.AsyncClient) -> None:
    for path in ("beginning", "end"):
        refused(await post(client, f"{ONE}/positions/{path}", parts(2)), 409, 40903)
    offset = {"topic": "t", "partition": 7, "offset": 1}
    refused(await post(client, f"{ONE}/positions", {"offsets": [offset]}), 409, 40903)
