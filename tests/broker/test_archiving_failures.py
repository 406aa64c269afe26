"""A pass of the archiver fails half way: readers see every record at all times, and the next pass continues."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import numbered, offsets_of
from tests.broker.logs import partition_log
from tests.storage.archive_scenes import NEVER, CrashingStore

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import Denied
from tidelog.storage.layout import MANIFESTS_PREFIX, TOPICS_PREFIX, WAL_PREFIX
from tidelog.storage.object_store import Body, ObjectStore, list_all
from tidelog.storage.stores.memory import MemoryObjectStore

PARTITIONS = 6
ALL = FetchLimits(1_000_000, 1 << 30)


class RefusingStore(CrashingStore):
    """While `refused` is a prefix, it refuses to write objects below it. With `too_late`, the object is written, and
    only the answer says otherwise."""

    def __init__(self, inner: ObjectStore, refused: str, *, too_late: bool = False) -> None:
        super().__init__(inner, NEVER, after=False)
        self.refused: str | None = refused
        self._too_late = too_late

    async def create(self, key: str, data: Body) -> str:
        if not self._too_late:
            self._check(key)
        version = await super().create(key, data)
        self._check(key)
        return version

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        self._check(key)
        return await super().put(key, data, if_version=if_version)

    def _check(self, key: str) -> None:
        if self.refused and key.startswith(self.refused):
            raise Denied(f"{key} may not be written")


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


@pytest.mark.parametrize("refused", [TOPICS_PREFIX, MANIFESTS_PREFIX])
async def test_a_pass_that_cannot_be_written_changes_nothing_and_the_next_one_continues(refused: str) -> None:
    store = MemoryObjectStore()
    refusing = RefusingStore(store, refused)
    async with running_broker(refusing, shards=1, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker, 0)
        for _ in range(2):
            with pytest.raises(Denied):
                await broker.archive_now()
            assert broker.status().shards[0].wal_floor == 0
            await check_reads(broker, 5)
        assert await cold_ends(broker) == dict.fromkeys(range(PARTITIONS), 0), "all partitions or none"
        await fill(broker, 5)
        await check_reads(broker, 10)
        refusing.refused = None
        await broker.archive_now()
        assert broker.status().shards[0].wal_bytes == 0
        assert await cold_ends(broker) == dict.fromkeys(range(PARTITIONS), 10)
        await delete_log(store)
        await check_reads(broker, 10)
    async with running_broker(store, shards=1) as broker:
        await check_reads(broker, 10)


async def test_a_version_that_was_appended_though_the_answer_was_lost_is_noticed_by_the_next_pass() -> None:
    store = MemoryObjectStore()
    forgetting = RefusingStore(store, MANIFESTS_PREFIX, too_late=True)
    async with running_broker(forgetting, shards=1, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker, 0)
        with pytest.raises(Denied):
            await broker.archive_now()
        await check_reads(broker, 5)
        forgetting.refused = None
        await broker.archive_now()  # nothing to archive, and the broker knows that the log is shorter
        assert broker.status().shards[0].wal_bytes == 0
        await delete_log(store)
        await check_reads(broker, 5)


async def test_while_the_passes_of_one_shard_fail_the_others_are_archived(caplog: pytest.LogCaptureFixture) -> None:
    refusing = RefusingStore(MemoryObjectStore(), f"{MANIFESTS_PREFIX}0000/")
    async with running_broker(refusing, shards=2, archiver_interval_ms=10) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for number in range(2):
            await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=number))
        await until(lambda: broker.status().shards[1].wal_bytes == 0)
        await until(lambda: "archiving of shard 0 failed" in caplog.text)
        for _ in range(3):
            await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=1))
            await until(lambda: broker.status().shards[1].wal_bytes == 0)
        assert broker.status().shards[0].wal_bytes > 0
