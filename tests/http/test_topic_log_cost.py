"""The requests to the bucket when a client asks where a topic's records are."""

from __future__ import annotations

import httpx
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


async def test_a_list_of_topics_asks_the_bucket_nothing_and_a_direct_reader_one_listing() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    async with running_broker(counting, archiver_upkeep=False) as broker:
        await broker.create_topic(ANYBODY, "t", 4, {})
        await broker.produce(ANYBODY, "t", draft([b"x"]), ProduceOptions(partition=0))
        app = create_app(broker, SETTINGS, Runtime())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:

            async def listings(path: str) -> int:
                before = counting.usage()
                assert (await client.get(path)).status_code == 200
                return (counting.usage() - before).requests(Verb.LIST)

            assert await listings("/v1/topics") == 0
            await client.get("/v1/topics/t")  # loads the partitions
            assert await listings("/v1/topics?detail=true") == 0
            assert await listings("/v1/topics/t") == 0
            assert await listings(f"{LOG}?fresh=false") == 0
            assert await listings(LOG) == 1
            refused = await client.get(f"{LOG}?fresh=maybe")
            assert (refused.status_code, refused.json()["field"]) == (400, "fresh")
