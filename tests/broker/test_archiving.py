"""When a WAL is archived, and that brokers do it without a command."""

from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.broker.drafts import numbered, offsets_of
from tests.broker.logs import partition_log
from tests.broker.set_clock import GRACE_S, SetClock

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.archive.archive_loop import (
    BEHIND_FACTOR,
    PATIENCE,
    PUTS_FREE,
    ArchiveLoop,
    ArchivePolicy,
    WalDebt,
)
from tidelog.services.broker.archive.background_threads import BackgroundThreads
from tidelog.services.broker.archive.topic_remover import TopicRemover
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.telemetry.damages import Damages
from tidelog.services.runtime.wiring import broker_parts
from tidelog.storage.layout import WAL_PREFIX
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import Kind
from tidelog.storage.stores.memory import MemoryObjectStore

POLICY = ArchivePolicy(interval_ms=60_000, bytes_min=1_000, entries_max=1_000)
MINUTE = 60_000
ALL = FetchLimits(1_000_000, 1 << 30)


def due(entries: int, wal_bytes: int, age_ms: int, *, partitions: int = 1, busy: bool = False) -> bool:
    return POLICY.is_due(WalDebt(entries, wal_bytes, partitions, age_ms), busy=busy)


def test_an_empty_wal_is_never_due() -> None:
    assert not due(0, 0, 10**13, partitions=0)


def test_a_wal_is_due_by_size_by_age_and_by_its_entries() -> None:
    assert not due(999, 999, MINUTE - 1)
    assert due(1, 1_000, 0)
    assert due(1, 1, MINUTE)
    assert due(1_000, 1, 0)


def test_under_load_a_wal_may_grow_to_a_bound_and_not_in_age() -> None:
    assert not due(1, 3_999, 0, busy=True)
    assert due(1, 4_000, 0, busy=True)
    assert due(1, 1, MINUTE, busy=True)
    assert due(1_000, 1, 0, busy=True)


@pytest.mark.parametrize(
    ("entries", "partitions", "expected"),
    [
        (1, 1, True),  # few PUTs: archiving need not wait
        (1, PUTS_FREE // 2, True),
        (1, PUTS_FREE // 2 + 1, False),
        (240, 120, True),  # one minute of a busy shard on S3: four entries a second
        (240, 121, False),
        (241, 121, False),
        (242, 121, True),
        (999, 1_000, False),
    ],
)
@pytest.mark.parametrize("busy", [False, True])
def test_an_old_wal_waits_until_a_pass_costs_no_more_than_its_entries(
    entries: int, partitions: int, expected: bool, busy: bool
) -> None:
    assert not due(entries, 1, MINUTE - 1, partitions=partitions, busy=busy)
    for age_ms in (MINUTE, PATIENCE * MINUTE - 1):
        assert due(entries, 1, age_ms, partitions=partitions, busy=busy) == expected


@pytest.mark.parametrize(("entries", "wal_bytes", "age_ms"), [(1_000, 1, 0), (1, 1_000, 0), (1, 1, PATIENCE * MINUTE)])
def test_however_many_partitions_a_wal_is_bounded_by_entries_bytes_and_age(
    entries: int, wal_bytes: int, age_ms: int
) -> None:
    assert due(entries, wal_bytes, age_ms, partitions=100_000)


@pytest.mark.parametrize(("entries", "wal_bytes"), [(1_000 * BEHIND_FACTOR, 0), (0, 1_000 * BEHIND_FACTOR)])
def test_a_wal_of_too_many_entries_or_bytes_has_fallen_behind(entries: int, wal_bytes: int) -> None:
    assert POLICY.is_behind(entries, wal_bytes)
    assert not POLICY.is_behind(max(0, entries - 1), max(0, wal_bytes - 1))


async def test_archiving_that_has_fallen_behind_takes_its_share_of_the_processor() -> None:
    clock, threads = SetClock(), BackgroundThreads(1)
    parts = broker_parts(replace(SETTINGS, shards=1), Runtime(clock), MemoryObjectStore())
    remover = TopicRemover(parts.store, parts.catalog, clock, GRACE_S)
    policy = replace(POLICY, bytes_min=1 << 40, entries_max=1)
    archive_loop = ArchiveLoop(parts.shards, parts.journal, remover, policy, Runtime(clock), threads, Damages(clock))
    broker = LocalBroker(parts)
    await broker.start()
    await broker.create_topic(ANYBODY, "t", 1, {})
    for number in range(BEHIND_FACTOR - 1):  # plus the entry that began the epoch
        assert not archive_loop.behind
        await broker.produce(ANYBODY, "t", numbered(number, 1), ProduceOptions(partition=0))
    assert archive_loop.behind
    await archive_loop.archive_due()
    assert threads.hurried
    assert not archive_loop.behind
    await broker.produce(ANYBODY, "t", numbered(BEHIND_FACTOR - 1, 1), ProduceOptions(partition=0))
    await archive_loop.archive_due()
    assert not threads.hurried
    await broker.aclose()


async def test_partitions_with_records_that_are_in_no_segment_are_counted() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 5, {})
        partitions = broker.shards.led_shard(0).leader.partitions
        for number in (0, 1, 1, 3):
            await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=number))
        assert partitions.unarchived() == 3
        await broker.archive_now()
        assert partitions.unarchived() == 0
        await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=4))
        assert partitions.unarchived() == 1
    async with running_broker(store, shards=1) as broker:  # nothing is loaded, and the contents of the log are known
        partitions = broker.shards.led_shard(0).leader.partitions
        assert partitions.unarchived() == 1
        await broker.fetch(ANYBODY, "t", 4, 0, ALL)
        assert partitions.unarchived() == 1
        await broker.archive_now()
        assert partitions.unarchived() == 0


async def test_many_partitions_of_little_traffic_are_archived_seldom_and_few_each_interval() -> None:
    """Archiving makes two PUTs per partition and pass; with many partitions the passes are ten intervals apart."""
    clock = SetClock()
    parts = broker_parts(replace(SETTINGS, shards=1), Runtime(clock), MemoryObjectStore())
    remover = TopicRemover(parts.store, parts.catalog, clock, GRACE_S)
    policy = replace(POLICY, bytes_min=1 << 40)
    archive_loop = ArchiveLoop(
        parts.shards, parts.journal, remover, policy, Runtime(clock), BackgroundThreads(1), Damages(clock)
    )
    broker = LocalBroker(parts)
    await broker.start()
    for topic, partitions, minutes in (("many", PUTS_FREE, PATIENCE), ("few", 2, 1)):
        await broker.create_topic(ANYBODY, topic, partitions, {})
        for number in range(partitions):
            await broker.produce(ANYBODY, topic, numbered(0, 1), ProduceOptions(partition=number))
        clock.pass_time(minutes * 60 - 30)
        assert await archive_loop.archive_due() == 0
        before = parts.counting.usage()
        clock.pass_time(30)
        assert await archive_loop.archive_due() == 1
        spent = parts.counting.usage() - before
        assert spent.counts(kind=Kind.SEGMENT).puts == spent.counts(kind=Kind.MANIFEST).puts == partitions
    await broker.aclose()


async def test_archiving_continues_by_itself_and_moves_the_floor(store: ObjectStore) -> None:
    async with running_broker(store, shards=1, archiver_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 50), ProduceOptions())
        await until(lambda: broker.status().shards[0].wal_bytes == 0)
        log = await partition_log(broker, "t", 0)
        assert (log.cold_end, log.high_watermark) == (50, 50)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FetchLimits(100, 1 << 20))) == list(range(50))


async def test_entries_stay_until_their_grace_is_over() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions())
        await broker.archive_now()
        assert broker.status().shards[0].wal_bytes == 0
        entries = [info.key async for info in list_all(store, WAL_PREFIX) if info.key.endswith(".parquet")]
        assert len(entries) == 2
