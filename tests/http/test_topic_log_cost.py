"""The requests to the bucket when a client asks where a topic's records are: a few per shard, none per partition."""

from __future__ import annotations

import httpx
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker
from tests.broker.drafts import draft

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.http.app import create_app
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

LOG = "/v1/topics/t/log"
SHARDS, PER_SHARD = 2, 2
"""A look whether the broker still leads a shard, and one whether its manifest is the newest."""


@pytest.mark.parametrize("partitions", [4, 100])
async def test_a_list_of_topics_asks_the_bucket_nothing_and_a_direct_reader_a_little_of_each_shard(
    partitions: int,
) -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    async with running_broker(counting, archiver_upkeep=False, shards=SHARDS) as broker:
        await broker.create_topic(ANYBODY, "t", partitions, {})
        for number in range(partitions):
            await broker.produce(ANYBODY, "t", draft([b"x"]), ProduceOptions(partition=number))
        await broker.archive_now()
        app = create_app(broker, SETTINGS, Runtime())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:

            async def requests(path: str) -> int:
                before = counting.usage()
                assert (await client.get(path)).status_code == 200
                return sum((counting.usage() - before).requests(verb) for verb in Verb)

            assert await requests("/v1/topics") == 0
            await client.get("/v1/topics/t")  # loads the partitions
            assert await requests("/v1/topics?detail=true") == 0
            assert await requests("/v1/topics/t") == 0
            assert await requests(f"{LOG}?fresh=false") == 0
            assert 0 < await requests(LOG) <= SHARDS * PER_SHARD
            log = (await client.get(LOG)).json()
            assert len(log["segments"]) == SHARDS
            assert sum(len(segment["spans"]) for segment in log["segments"]) == partitions
            refused = await client.get(f"{LOG}?fresh=maybe")
            assert (refused.status_code, refused.json()["field"]) == (400, "fresh")
