"""Thousands of consumer instances of one group, made over a few connections: bounded in number, memory and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import psutil
import pytest
from tests.http.conftest import SETTINGS, Served
from tests.http.kafka_rest.instance_calls import post
from tests.http.kafka_rest.rest import JSON, MANAGEMENT, placed, refused
from tests.http.sockets import Answer, Wire, connected, head

from tidelog.services.settings.settings import Settings

CONNECTIONS = 4
INSTANCE_BYTES_MAX = 16_000
"""Memory of the process for one instance, the objects of this test included."""
SECONDS_PER_INSTANCE_MAX = 0.02


@pytest.fixture(params=[1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def count(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def settings(count: int) -> Settings:
    return replace(SETTINGS, group_instances_max=count)


async def call(wire: Wire, method: str, path: str, body: object = None, accept: str = MANAGEMENT) -> Answer:
    content = b"" if body is None else json.dumps(body).encode()
    length = str(len(content))
    await wire.send(head(method, path, Content_Type=MANAGEMENT, Accept=accept, Content_Length=length) + content)
    return await wire.answer()


async def lives(wire: Wire, numbers: Iterator[int]) -> None:
    """Make instances, and let each read a record of its partition."""
    for number in numbers:
        path = f"/consumers/g/instances/i{number}"
        config = {"name": f"i{number}", "format": "json", "auto.offset.reset": "earliest"}
        assert (await call(wire, "POST", "/consumers/g", config)).status == 200
        mine = {"partitions": [{"topic": "t", "partition": number % 2}]}
        assert (await call(wire, "POST", f"{path}/assignments", mine)).status == 204
        page = await call(wire, "GET", f"{path}/records?timeout=0", accept=JSON)
        assert [record["value"] for record in json.loads(page.body)] == [number % 2]


async def test_as_many_instances_as_a_group_may_have(count: int, served: Served, live: httpx.AsyncClient) -> None:
    await live.post("/v1/topics", json={"name": "t", "partitions": 2})
    for partition in (0, 1):
        await placed(live, f"/topics/t/partitions/{partition}", json.dumps({"records": [{"value": partition}]}))
    process, numbers = psutil.Process(), iter(range(count))
    async with asyncio.timeout(SECONDS_PER_INSTANCE_MAX * count), AsyncExitStack() as stack:
        before_bytes = process.memory_info().rss
        wires = [await stack.enter_async_context(connected(served)) for _ in range(CONNECTIONS)]
        await asyncio.gather(*(lives(wire, numbers) for wire in wires))
        assert process.memory_info().rss - before_bytes < INSTANCE_BYTES_MAX * count
        refused(await post(live, "/consumers/g", {"name": "one-more"}), 503, 50302)
        assert (await call(wires[0], "DELETE", "/consumers/g/instances/i7")).status == 204
        assert (await call(wires[0], "POST", "/consumers/g", {"name": "one-more"})).status == 200
