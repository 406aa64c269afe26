"""One object of the bucket is deleted or damaged while a broker runs: the broker names it, keeps serving everything
else, and does not ask for it without pause."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import numbered, offsets_of
from tests.broker.logs import partition_log
from tests.coordinator.virtual_time import LoopClock, virtually
from tests.storage.damage_by_hand import Harm, cut, delete, flip

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import Corrupt, RecordsLost
from tidelog.storage.layout import index_prefix, numbered_key, wal_prefix
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
ARCHIVES = {"archiver_interval_ms": 0, "archiver_min_bytes": 1}
REQUESTS_A_MINUTE_MAX = 60


def entry_key(seq: int, shard: int = 0) -> str:
    return numbered_key(wal_prefix(shard), seq, ".parquet")


async def produce(broker: LocalBroker, partition: int, first: int, count: int = 10) -> None:
    await broker.produce(ANYBODY, "t", numbered(first, count), ProduceOptions(partition=partition))


async def cold_ends(broker: LocalBroker, partitions: int) -> list[int]:
    logs = [await partition_log(broker, "t", number, fresh=False) for number in range(partitions)]
    return [log.cold_end for log in logs]


@pytest.mark.parametrize("harm", [delete, flip])
@virtually
async def test_a_lost_wal_entry_is_named_once_and_the_rest_is_archived(
    harm: Harm, caplog: pytest.LogCaptureFixture
) -> None:
    counting = CountingObjectStore(store := MemoryObjectStore())
    async with running_broker(counting, clock=LoopClock(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        for number in (0, 1, 2, 0, 2):  # entries 1 to 5
            await produce(broker, number, 10 if number in (0, 2) and broker.status().shards[0].wal_next > 3 else 0)
        await harm(store, entry_key(2))
        with pytest.raises(Corrupt, match=entry_key(2)):
            await broker.archive_now()
        assert await cold_ends(broker, 3) == [20, 0, 20]
        assert broker.status().ready
        assert [damage.key for damage in broker.status().damages] == [entry_key(2)]
        before = counting.usage()
        await asyncio.sleep(60)
        assert (counting.usage() - before).total().requests <= REQUESTS_A_MINUTE_MAX
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert entry_key(2) in errors[0].getMessage()
    assert "tidelog bucket repair" in errors[0].getMessage()


@virtually
async def test_the_archiver_of_a_damaged_log_does_not_run_hot() -> None:
    counting = CountingObjectStore(store := MemoryObjectStore())
    async with running_broker(counting, clock=LoopClock(), shards=2, **ARCHIVES) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        await until(lambda: all(shard.wal_bytes == 0 for shard in broker.status().shards))
        await store.delete(entry_key(broker.status().shards[0].wal_next - 1))
        await produce(broker, 0, 0)
        await store.delete(entry_key(broker.status().shards[0].wal_next - 1))
        await produce(broker, 0, 10)
        await until(lambda: bool(broker.status().damages))
        before = counting.usage()
        await asyncio.sleep(60)
        assert (counting.usage() - before).total().requests <= REQUESTS_A_MINUTE_MAX
        await produce(broker, 1, 0)
        await until(lambda: broker.status().shards[1].wal_bytes == 0)


async def two_topics(broker: LocalBroker) -> str:
    """Topics t and u with a list each in shard 0. Returns the key of the list of t."""
    await broker.create_topic(ANYBODY, "t", 1, {})
    await broker.create_topic(ANYBODY, "u", 1, {})
    for topic in ("t", "u"):
        await broker.produce(ANYBODY, topic, numbered(0, 10), ProduceOptions(partition=0))
    await broker.archive_now()
    manifest = broker.shards.led_shard(0).manifest
    assert manifest is not None
    stored = manifest.topics[broker.topic(ANYBODY, "t").topic_id].stored
    assert stored is not None
    return stored.key


@pytest.fixture
def lists_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every topic has a list, however few segments it has."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)


@pytest.mark.usefixtures("lists_always")
@pytest.mark.parametrize("harm", [delete, flip, cut])
@virtually
async def test_a_damaged_list_harms_its_topic_alone(harm: Harm) -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        key = await two_topics(broker)
    await harm(store, key)
    counting = CountingObjectStore(store)
    async with running_broker(counting, clock=LoopClock(), shards=1, **ARCHIVES) as broker:
        await broker.produce(ANYBODY, "u", numbered(10, 10), ProduceOptions(partition=0))
        with pytest.raises(Corrupt, match=key):
            await produce(broker, 0, 10)
        with pytest.raises(Corrupt, match=key):
            await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        assert [topic.name for topic in broker.topics(ANYBODY)] == ["t", "u"]
        await until(lambda: not any(shard.wal_bytes for shard in broker.status().shards))
        assert offsets_of(await broker.fetch(ANYBODY, "u", 0, 0, ALL)) == list(range(20))
        before = counting.usage()
        await asyncio.sleep(60)
        assert (counting.usage() - before).total().requests <= REQUESTS_A_MINUTE_MAX


@pytest.mark.usefixtures("lists_always")
@virtually
async def test_records_of_a_topic_with_a_damaged_list_stay_in_the_log_while_others_are_archived() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, clock=LoopClock(), shards=1) as broker:
        key = await two_topics(broker)
        for topic in ("t", "u"):
            await broker.produce(ANYBODY, topic, numbered(10, 10), ProduceOptions(partition=0))
    saved = (await store.get(key)).data
    await cut(store, key)
    async with running_broker(store, clock=LoopClock(), shards=1) as broker:
        floor = broker.status().shards[0].wal_floor
        for first in (20, 30, 40):
            with pytest.raises(Corrupt, match=key):
                await broker.archive_now()
            await broker.produce(ANYBODY, "u", numbered(first, 10), ProduceOptions(partition=0))
        (damage,) = broker.status().damages
        assert (damage.key, damage.shard, damage.topic) == (key, 0, "t")
        assert broker.status().shards[0].wal_floor == floor, "the floor passes nothing that is not archived"
        assert (await partition_log(broker, "u", 0, fresh=False)).cold_end == 40
        await store.put(key, saved)
        await asyncio.sleep(31)
        await broker.archive_now()
        assert broker.status().damages == []
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(20))
        assert broker.status().shards[0].wal_bytes == 0


@pytest.mark.parametrize("harm", [flip, cut])
@virtually
async def test_a_damaged_version_stops_the_archiving_of_its_shard_alone(harm: Harm) -> None:
    """The broker knows the newest version of its shards, so another process must have appended the damaged one."""
    counting = CountingObjectStore(store := MemoryObjectStore())
    async with running_broker(counting, clock=LoopClock(), shards=2, **ARCHIVES) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for number in range(2):
            await produce(broker, number, 0)
        await until(lambda: not any(shard.wal_bytes for shard in broker.status().shards))
        log = ShardLog(store, 0, Runtime())
        key = log.key((await log.append(ManifestChange(ChangeKind.SWEEP), await log.latest())).version)
        await harm(store, key)
        await produce(broker, 0, 10)
        await until(lambda: bool(broker.status().damages))
        assert [damage.key for damage in broker.status().damages] == [key]
        assert "Nothing of shard 0 is archived" in broker.status().damages[0].effect
        await produce(broker, 1, 10)
        await until(lambda: broker.status().shards[1].wal_bytes == 0)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == list(range(20)), "it is served"
        before = counting.usage()
        await asyncio.sleep(60)
        assert (counting.usage() - before).total().requests <= REQUESTS_A_MINUTE_MAX


async def test_delete_records_beyond_a_lost_entry_says_so_and_elsewhere_works() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for first in range(0, 30, 10):
            await produce(broker, 0, first)
            await produce(broker, 1, first)
        await store.delete(entry_key(3))  # 10 to 19 of partition 0
        with pytest.raises(RecordsLost, match=entry_key(3)) as caught:
            await broker.delete_records(ANYBODY, "t", 0, 25)
        assert (caught.value.first_offset, caught.value.next_offset) == (10, 20)
        assert await broker.delete_records(ANYBODY, "t", 0, 5) == 5
        assert await broker.delete_records(ANYBODY, "t", 1, 25) == 25


@pytest.mark.parametrize("harm", [delete, flip])
@pytest.mark.parametrize("archived", [False, True])
async def test_a_reader_is_told_which_offsets_are_lost_and_continues_behind_them(harm: Harm, archived: bool) -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        for first in (0, 10, 20):
            await produce(broker, 0, first)
            if archived:
                await broker.archive_now()
        key = entry_key(2)
        if archived:
            key = (await partition_log(broker, "t", 0)).segments[1].key
        await harm(store, key)
        before = await broker.fetch(ANYBODY, "t", 0, 5, ALL)
        assert (offsets_of(before), before.next_offset) == (list(range(5, 10)), 10)
        for offset in (10, 15):
            with pytest.raises(RecordsLost, match=key) as caught:
                await broker.fetch(ANYBODY, "t", 0, offset, ALL)
            assert (caught.value.first_offset, caught.value.next_offset) == (10, 20)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 20, ALL)) == list(range(20, 30))


@pytest.mark.parametrize("harm", [delete, flip, cut])
@pytest.mark.parametrize("seq", [1, 2, 5])
async def test_a_log_that_lost_an_entry_opens_and_serves_the_rest(harm: Harm, seq: int) -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for first in range(0, 30, 10):
            for number in range(2):  # entries 1 to 6
                await produce(broker, number, first)
    await harm(store, entry_key(seq))
    partition, first = (seq - 1) % 2, (seq - 1) // 2 * 10
    for _ in range(2):
        async with running_broker(store, shards=1) as broker:
            assert offsets_of(await broker.fetch(ANYBODY, "t", 1 - partition, 0, ALL)) == list(range(30))
            if first == 20:
                continue  # nothing tells which records the last entry of a partition held
            with pytest.raises(RecordsLost, match=entry_key(seq)) as caught:
                await broker.fetch(ANYBODY, "t", partition, first, ALL)
            assert (caught.value.first_offset, caught.value.next_offset) == (first, first + 10)
            assert offsets_of(await broker.fetch(ANYBODY, "t", partition, first + 10, ALL)) == list(
                range(first + 10, 30)
            )
            with pytest.raises(Corrupt, match=entry_key(seq)):
                await broker.archive_now()
            assert await cold_ends(broker, 2) == [first, 30] if partition == 0 else [30, first]


async def test_a_broker_that_finds_a_loss_keeps_the_spans_of_the_entry_for_the_next_broker() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for number in range(2):
            await produce(broker, number, 0)
        await store.delete(entry_key(1))
        with pytest.raises(Corrupt):
            await broker.archive_now()
        while not await store.list(index_prefix(0)):  # noqa: ASYNC110  # the bucket sends no signal
            await asyncio.sleep(0.001)
    async with running_broker(store, shards=1) as broker:
        with pytest.raises(RecordsLost, match=entry_key(1)):
            await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        (answer,) = await broker.produce(ANYBODY, "t", numbered(10, 1), ProduceOptions(partition=0))
        assert answer.base_offset == 10, "no offset is given out twice"
