"""Bounds of the settings, as a client sees them."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from tests.http.conftest import SETTINGS
from tests.http.requests import problem

from tidelog.services.settings.settings import Settings

P0 = "/v1/topics/one/partitions/0/records"


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, topics_max=2, topic_partitions_max=3, partitions_max=4, producer_ids_max=1)


async def test_topics_and_partitions_beyond_their_limits_are_refused(client: httpx.AsyncClient) -> None:
    async def create(name: str, partitions: int) -> httpx.Response:
        return await client.post("/v1/topics", json={"name": name, "partitions": partitions})

    assert "topic.partitions.max" in problem(await create("one", 4), 422, "invalid")["detail"]
    assert (await create("one", 3)).status_code == 201
    assert " partitions.max" in problem(await create("two", 2), 422, "invalid")["detail"]
    assert (await create("two", 1)).status_code == 201
    assert "topics.max" in problem(await create("three", 1), 422, "invalid")["detail"]
    produced = await client.post("/v1/topics/three/records", json={"records": [{"value": "x"}]})
    assert "topics.max" in problem(produced, 422, "invalid")["detail"]


async def test_a_producer_that_was_forgotten_at_the_bound_begins_again(client: httpx.AsyncClient) -> None:
    async def produce(producer: str) -> dict[str, object]:
        headers = {"Tidelog-Producer-Id": producer, "Tidelog-Producer-Epoch": "0", "Tidelog-Sequence": "0"}
        answer = await client.post(P0, json={"records": [{"value": "x"}]}, headers=headers)
        appended: dict[str, object] = answer.json()["partitions"][0]
        return appended

    await client.post("/v1/topics", json={"name": "one", "partitions": 1})
    assert (await produce("a"))["base_offset"] == 0
    assert (await produce("a"))["duplicate"] is True
    assert (await produce("b"))["base_offset"] == 1
    late = await produce("a")
    assert (late["base_offset"], late.get("duplicate")) == (2, None)
