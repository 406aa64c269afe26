"""Which partitions a consumer instance reads: by subscription, by pattern, and in a group."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.http.kafka_rest.instance_calls import ONE, create, done, get, poll, values
from tests.http.kafka_rest.rest import placed

pytestmark = pytest.mark.usefixtures("topic")


async def first_values(client: httpx.AsyncClient) -> list[Any]:
    """The values of the first poll that finds records."""
    found: list[Any] = []
    async with asyncio.timeout(10):
        while not found:
            found = values(await poll(client, timeout=100))
    return found


async def test_two_instances_share_the_partitions(client: httpx.AsyncClient) -> None:
    one, two = await create(client), await create(client, name="other")
    for path in (one, two):
        await done(client, f"{path}/subscription", {"topics": ["t"]})
    seen = values(await poll(client, one))
    assert len(seen) == 10
    owned: list[Any] = []
    async with asyncio.timeout(10):
        while len(owned) != 2 or owned[0] == owned[1]:
            seen += values(await poll(client, two)) + values(await poll(client, one))
            owned = [(await get(client, f"{path}/assignments"))["partitions"] for path in (one, two)]
            owned = owned if all(len(partitions) == 1 for partitions in owned) else []
    await placed(client, "/topics/t/partitions/0", '{"records":[{"value":"a"}]}')
    await placed(client, "/topics/t/partitions/1", '{"records":[{"value":"b"}]}')
    assert sorted(values(await poll(client, one)) + values(await poll(client, two))) == ["a", "b"]


async def test_a_pattern_finds_topics_that_come_later(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topic_pattern": "t|late-.*"})
    assert len(await poll(client)) == 10
    await client.post("/v1/topics", json={"name": "late-1", "partitions": 1})
    await placed(client, "/topics/late-1", '{"records":[{"value":"late"}]}')
    assert await first_values(client) == ["late"]
    assert (await get(client, f"{ONE}/subscription")) == {"topics": ["late-1", "t"]}


async def test_after_another_subscription_no_record_of_the_former_topic_is_answered(client: httpx.AsyncClient) -> None:
    await client.post("/v1/topics", json={"name": "u", "partitions": 1})
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t"]})
    assert len(await poll(client, max_bytes=1)) == 1
    await done(client, f"{ONE}/subscription", {"topics": ["u"]})
    await placed(client, "/topics/u", '{"records":[{"value":"u"}]}')
    assert await first_values(client) == ["u"]


async def test_a_deleted_topic_is_left_out(client: httpx.AsyncClient) -> None:
    await create(client)
    await done(client, f"{ONE}/subscription", {"topics": ["t", "u"]})
    assert len(await poll(client)) == 10
    assert (await client.delete("/v1/topics/t")).status_code == 204
    assert await poll(client) == []
    await client.post("/v1/topics", json={"name": "u", "partitions": 1})
    await placed(client, "/topics/u", '{"records":[{"value":"u"}]}')
    assert await first_values(client) == ["u"]
