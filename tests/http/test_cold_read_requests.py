"""The requests to the bucket for a lookup of an old record over HTTP, at a broker that has just started."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.broker.drafts import draft
from tests.broker.logs import partition_log
from tests.http.requests import ARROW, read_arrow

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.http.app import create_app
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore, Kind, Usage
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

TO_ZERO = ProduceOptions(partition=0)
BATCHES, BATCH_RECORDS, VALUE_BYTES = 4, 6_000, 1_000
RECORDS = BATCHES * BATCH_RECORDS
LOOKUP = "/v1/topics/t/partitions/0/records?max_records=10&offset="


def time_of(offset: int) -> int:
    return 1_700_000_000_000 + offset


@pytest.fixture(scope="module")
def archived() -> MemoryObjectStore:
    """A bucket with one segment of three row groups that do not compress, and empty WALs."""
    return asyncio.run(archive())


async def archive() -> MemoryObjectStore:
    store, noise = MemoryObjectStore(), random.Random(5)
    async with running_broker(store, shards=1, archiver_batch_bytes=1 << 30, fetch_max_bytes=1 << 20) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {"retention.ms": -1})
        for start in range(0, RECORDS, BATCH_RECORDS):
            offsets = range(start, start + BATCH_RECORDS)
            values = [noise.randbytes(VALUE_BYTES) for _ in offsets]
            await broker.produce(ANYBODY, "t", draft(values, timestamps=[time_of(at) for at in offsets]), TO_ZERO)
        await broker.archive_now()
        [segment] = (await partition_log(broker, "t", 0)).segments
        assert segment.size_bytes > RECORDS * VALUE_BYTES
    return store


@dataclass(frozen=True)
class Fresh:
    """A broker that has just started."""

    client: httpx.AsyncClient
    counting: CountingObjectStore

    async def asked(self, path: str, first_offset: int) -> Usage:
        """The store requests for a fetch of `path`; its result must begin at `first_offset`."""
        before = self.counting.usage()
        answer = await self.client.get(path, headers={"accept": ARROW})
        assert answer.status_code == 200, answer.text
        offsets = read_arrow(answer.content)["offset"].to_pylist()
        assert offsets == list(range(first_offset, first_offset + 10))
        return self.counting.usage() - before


@asynccontextmanager
async def fresh_broker(store: ObjectStore) -> AsyncIterator[Fresh]:
    counting = CountingObjectStore(store)
    async with running_broker(counting, shards=1, archiver_upkeep=False) as broker:  # upkeep's must not count
        log = broker.shards.leading(0).partitions.log
        await until(lambda: log.known is not None)  # the first look for entries to delete must not count either
        app = create_app(broker, SETTINGS, Runtime())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            yield Fresh(client, counting)


def counts(usage: Usage) -> dict[str, int]:
    """Counts by kind of request."""
    found = {
        "manifest": usage.requests(kind=Kind.MANIFEST),
        "segment GET": usage.requests(Verb.GET, kind=Kind.SEGMENT),
    }
    return found | {"others": usage.requests() - usage.requests(kind=Kind.WAL) - sum(found.values())}


COLD = {"manifest": 1, "segment GET": 2, "others": 0}
"""A HEAD of the version after the one that this broker has read, a footer and a row group."""
WARM = {"manifest": 0, "segment GET": 1, "others": 0}


async def test_an_old_offset_takes_three_requests_cold_and_one_warm(archived: MemoryObjectStore) -> None:
    async with fresh_broker(archived) as fresh:
        assert counts(await fresh.asked(f"{LOOKUP}12000", 12_000)) == COLD
        assert counts(await fresh.asked(f"{LOOKUP}100", 100)) == WARM
        assert counts(await fresh.asked(f"{LOOKUP}23000", 23_000)) == WARM


async def test_an_old_time_takes_three_requests_cold_and_one_warm(archived: MemoryObjectStore) -> None:
    async with fresh_broker(archived) as fresh:
        assert counts(await fresh.asked(f"{LOOKUP}@{time_of(12_000)}", 12_000)) == COLD
        assert counts(await fresh.asked(f"{LOOKUP}@{time_of(100)}", 100)) == WARM
        assert counts(await fresh.asked(f"{LOOKUP}@{time_of(23_000)}", 23_000)) == WARM


async def test_a_lookup_fetches_its_row_group_and_a_footer(archived: MemoryObjectStore) -> None:
    async with fresh_broker(archived) as fresh:
        await fresh.asked(f"{LOOKUP}12000", 12_000)
        usage = await fresh.asked(f"{LOOKUP}100", 100)
        received = usage.total(Verb.GET, kind=Kind.SEGMENT).received_bytes
        assert received < 0.5 * RECORDS * VALUE_BYTES


async def test_a_second_look_at_the_same_place_asks_for_nothing(archived: MemoryObjectStore) -> None:
    async with fresh_broker(archived) as fresh:
        await fresh.asked(f"{LOOKUP}12000", 12_000)
        assert (await fresh.asked(f"{LOOKUP}12005", 12_005)).requests() == 0
        assert (await fresh.asked(f"{LOOKUP}@{time_of(12_900)}", 12_900)).requests() == 0
