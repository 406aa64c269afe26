"""What clients and operators see while too much is not archived: 503 with Retry-After, and why."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import httpx
import pytest
from tests.http.conftest import SETTINGS
from tests.http.requests import problem

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.settings.settings import Settings

CHANCE = Random(1)
RECORDS = {"records": [{"value": CHANCE.randbytes(9_000).hex()} for _ in range(40)]}


@pytest.fixture
def settings() -> Settings:
    never = 10**12
    return replace(SETTINGS, archiver_debt_max_bytes=1 << 20, archiver_min_bytes=1 << 40, archiver_interval_ms=never)


async def test_a_refused_produce_says_when_to_come_back_and_health_says_why(
    client: httpx.AsyncClient, broker: LocalBroker
) -> None:
    archive = broker._parts.archive_loop
    await archive.close()  # so that nothing is archived until the test says so
    answer = await client.post("/v1/topics/web/records", json=RECORDS)
    while answer.status_code == 200:
        answer = await client.post("/v1/topics/web/records", json=RECORDS)
    assert "archiver.debt.max.bytes" in problem(answer, 503, "overloaded")["detail"]
    assert int(answer.headers["retry-after"]) >= 1
    ready = await client.get("/readyz")
    assert ready.status_code == 200, "readers are served"
    assert "produces are refused" in ready.json()["reason"]
    assert (await client.get("/v1/cluster")).json()["ready"]
    metrics = (await client.get("/metrics")).text
    assert "tidelog_produce_brake 1.0" in metrics
    assert "tidelog_produces_refused_total 1.0" in metrics
    await broker.archive_now()
    assert (await client.get("/readyz")).json() == {"status": "ready"}
    assert (await client.post("/v1/topics/web/records", json=RECORDS)).status_code == 200
