"""Fixtures of the tests of Kafka's REST interface."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.http.kafka_rest.rest import placed


@pytest.fixture
async def topic(client: httpx.AsyncClient) -> None:
    """A topic `t` of two partitions: 0 to 4 in partition 0, 10 to 14 in partition 1."""
    await client.post("/v1/topics", json={"name": "t", "partitions": 2})
    for partition in (0, 1):
        records = [{"key": n, "value": 10 * partition + n} for n in range(5)]
        await placed(client, f"/topics/t/partitions/{partition}", json.dumps({"records": records}))
