"""A produce for several partitions of which one cannot be stored: each record has its place or its error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.gated_store import GatedObjectStore
from tests.http.kafka_rest.rest import placed, produce, refused

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.layout import wal_prefix
from tidelog.storage.stores.memory import MemoryObjectStore


@pytest.fixture
def gated() -> GatedObjectStore:
    return GatedObjectStore(MemoryObjectStore())


@pytest.fixture
async def broker(gated: GatedObjectStore) -> AsyncIterator[LocalBroker]:
    """The write-ahead log of partition 1 is not committed in time."""
    async with running_broker(gated, commit_timeout_ms=500) as broker:
        topic = await broker.create_topic(ANYBODY, "two", 2, {})
        gated.hold(wal_prefix(topic.shards[1]))
        yield broker
        gated.gate.set()


@pytest.mark.parametrize("padding_bytes", [0, 10_000])
async def test_each_record_has_its_place_or_its_error(client: httpx.AsyncClient, padding_bytes: int) -> None:
    rows = [{"value": "x" * padding_bytes, "partition": n % 2} for n in range(5)]
    answer = await produce(client, "/topics/two", json.dumps({"records": rows}))
    assert answer.status_code == 200
    offsets = answer.json()["offsets"]
    assert [offsets[n] for n in (0, 2, 4)] == [{"partition": 0, "offset": n} for n in range(3)]
    for n in (1, 3):
        assert offsets[n].keys() == {"error_code", "error"}
        assert offsets[n]["error_code"] == 50003
        assert "unknown" in offsets[n]["error"]


async def test_a_request_of_which_nothing_is_stored_fails_as_a_whole(client: httpx.AsyncClient) -> None:
    both = [produce(client, "/topics/two", f'{{"records":[{{"value":1,"partition":{n}}}]}}') for n in (1, 0)]
    failed, stored = await asyncio.gather(*both)
    refused(failed, 500, 50003)
    assert [one["partition"] for one in stored.json()["offsets"]] == [0]


async def test_a_partition_that_is_stuck_does_not_hold_up_the_others(
    client: httpx.AsyncClient, gated: GatedObjectStore
) -> None:
    stuck = asyncio.create_task(produce(client, "/topics/two", '{"records":[{"value":1,"partition":1}]}'))
    await gated.arrived.wait()
    for n in range(3):
        assert await placed(client, "/topics/two", '{"records":[{"value":1,"partition":0}]}') == [(0, n)]
        assert not stuck.done()
    refused(await stuck, 500, 50003)
