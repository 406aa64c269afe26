"""A pass of the archiver fails half way: readers see every record at all times, and the next pass continues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import numbered, offsets_of
from tests.broker.logs import partition_log
from tests.storage.archive_scenes import NEVER, CrashingStore

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.archive.archiver import PARTITIONS_AT_ONCE
from tidelog.storage.errors import Denied
from tidelog.storage.layout import WAL_PREFIX, floor_key
from tidelog.storage.object_store import Body, ObjectStore, list_all
from tidelog.storage.stores.memory import MemoryObjectStore

PARTITIONS = PARTITIONS_AT_ONCE + 4
REFUSED = 3
ALL = FetchLimits(1_000_000, 1 << 30)


class RefusingStore(CrashingStore):
    """While `refusing`, it refuses uploads of partition `REFUSED`, and uploads of other partitions take longer than the
    refusal."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.refusing = True
        self._refused = asyncio.Event()

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        if self.refusing and "/partition=" in key:
            if f"/partition={REFUSED}/" in key:
                self._refused.set()
                raise Denied(f"{key} may not be written")
            await self._refused.wait()
        return await super().put(key, data, if_version=if_version)


class ForgettingStore(CrashingStore):
    """The floor moves, but the worker gets the answer that it may not move it."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.forgetting = True

    async def create(self, key: str, data: Body) -> str:
        version = await super().create(key, data)
        if self.forgetting and key == floor_key(0):
            raise Denied(f"{key} may not be written")
        return version


async def fill(broker: LocalBroker, first: int) -> None:
    for number in range(PARTITIONS):
        await broker.produce(ANYBODY, "t", numbered(first, 5), ProduceOptions(partition=number))


async def check_reads(broker: LocalBroker, count: int) -> None:
    for number in range(PARTITIONS):
        assert offsets_of(await broker.fetch(ANYBODY, "t", number, 0, ALL)) == list(range(count)), number


async def cold_ends(broker: LocalBroker) -> Mapping[int, int]:
    return {number: (await partition_log(broker, "t", number)).cold_end for number in range(PARTITIONS)}


async def delete_log(store: ObjectStore) -> None:
    """Delete all entries, as after their grace."""
    for key in [info.key async for info in list_all(store, WAL_PREFIX) if info.key.endswith(".parquet")]:
        await store.delete(key)


async def test_one_partition_fails_while_others_are_under_way_and_the_next_pass_continues() -> None:
    store = MemoryObjectStore()
    refusing = RefusingStore(store)
    async with running_broker(refusing, shards=1, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker, 0)
        for _ in range(2):
            with pytest.raises(Denied):
                await broker.archive_now()
            assert broker.status().shards[0].wal_floor == 0
            await check_reads(broker, 5)
        ends = await cold_ends(broker)
        assert ends[REFUSED] == 0
        assert sum(end == 5 for end in ends.values()) >= PARTITIONS_AT_ONCE - 1, "what was under way is told"
        await fill(broker, 5)
        await check_reads(broker, 10)
        refusing.refusing = False
        await broker.archive_now()
        assert broker.status().shards[0].wal_bytes == 0
        assert await cold_ends(broker) == dict.fromkeys(range(PARTITIONS), 10)
        await delete_log(store)
        await check_reads(broker, 10)
    async with running_broker(store, shards=1) as broker:
        await check_reads(broker, 10)


async def test_a_floor_that_moved_though_the_answer_was_lost_is_noticed_by_the_next_pass() -> None:
    store = MemoryObjectStore()
    forgetting = ForgettingStore(store)
    async with running_broker(forgetting, shards=1, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker, 0)
        with pytest.raises(Denied):
            await broker.archive_now()
        await check_reads(broker, 5)
        forgetting.forgetting = False
        await broker.archive_now()  # nothing to archive, and the broker knows that the log is shorter
        assert broker.status().shards[0].wal_bytes == 0
        await delete_log(store)
        await check_reads(broker, 5)
