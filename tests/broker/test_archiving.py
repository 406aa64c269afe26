"""That brokers archive by themselves: in time, several shards side by side, and with the priority that is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.broker.drafts import numbered, offsets_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.logs import partition_log
from tests.broker.set_clock import SetClock

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.archive.archive_loop import ArchiveLoop
from tidelog.services.broker.archive.archive_policy import PATIENCE, PUTS_FREE, ArchivePolicy
from tidelog.services.broker.archive.background_threads import BackgroundThreads
from tidelog.services.broker.archive.processor_turns import ProcessorTurns
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.telemetry.damages import Damages
from tidelog.services.runtime.wiring import broker_parts
from tidelog.storage.layout import MANIFESTS_PREFIX, WAL_PREFIX
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import Kind
from tidelog.storage.stores.memory import MemoryObjectStore

POLICY = ArchivePolicy(interval_ms=60_000, bytes_min=1 << 40, debt_bytes_max=1 << 40, entries_max=1_000)


def patient_threads(processors: int) -> BackgroundThreads:
    return BackgroundThreads(ProcessorTurns(processors, lambda: False))


@asynccontextmanager
async def loop_by_hand(
    clock: SetClock, policy: ArchivePolicy, threads: BackgroundThreads, *, shards: int = 1
) -> AsyncIterator[tuple[LocalBroker, BrokerParts, ArchiveLoop]]:
    """A broker, and a loop over its shards that archives only when the test says so."""
    parts = broker_parts(replace(SETTINGS, shards=shards), Runtime(clock), MemoryObjectStore())
    archive_loop = ArchiveLoop(
        parts.shards, parts.journal, policy, parts.brake, Runtime(clock), threads, Damages(clock)
    )
    broker = LocalBroker(parts)
    await broker.start()
    try:
        yield broker, parts, archive_loop
    finally:
        await archive_loop.close()
        await broker.aclose()


async def archived(archive_loop: ArchiveLoop) -> int:
    """How many shards were due; their passes have ended."""
    begun = archive_loop.begin_due()
    await archive_loop.all_ended()
    return len(begun)


async def test_archiving_that_has_fallen_behind_takes_its_share_of_the_processor() -> None:
    clock, threads = SetClock(), patient_threads(1)
    policy = replace(POLICY, entries_max=1)
    async with loop_by_hand(clock, policy, threads) as (broker, _, archive_loop):
        await broker.create_topic(ANYBODY, "t", 1, {})
        for number in range(7):  # plus the entry that began the epoch
            assert not archive_loop.behind
            await broker.produce(ANYBODY, "t", numbered(number, 1), ProduceOptions(partition=0))
        assert archive_loop.behind
        assert await archived(archive_loop) == 1
        assert threads.hurried
        assert not archive_loop.behind
        await broker.produce(ANYBODY, "t", numbered(7, 1), ProduceOptions(partition=0))
        assert await archived(archive_loop) == 1
        assert not threads.hurried


async def test_a_pass_costs_a_put_for_each_topic_and_one_however_many_partitions() -> None:
    """Many topics of little traffic are archived ten intervals apart, one topic of many partitions every interval."""
    clock = SetClock()
    async with loop_by_hand(clock, POLICY, patient_threads(1)) as (broker, parts, archive_loop):
        for topics, partitions, minutes in ((1, 4 * PUTS_FREE, 1), (PUTS_FREE, 1, PATIENCE)):
            names = [f"{minutes}-{number}" for number in range(topics)]
            for name in names:
                await broker.create_topic(ANYBODY, name, partitions, {})
                entry = numbered(0, 4 * partitions)
                await broker.produce(ANYBODY, name, entry, ProduceOptions())
            clock.pass_time(minutes * 60 - 30)
            assert await archived(archive_loop) == 0
            before = parts.counting.usage()
            clock.pass_time(30)
            assert await archived(archive_loop) == 1
            spent = parts.counting.usage() - before
            assert (spent.counts(kind=Kind.SEGMENT).puts, spent.counts(kind=Kind.MANIFEST).puts) == (topics, 1)


async def test_passes_of_shards_run_side_by_side_within_a_bound() -> None:
    store = GatedObjectStore(MemoryObjectStore())
    parts = broker_parts(replace(SETTINGS, shards=3), Runtime(), store)
    policy = replace(POLICY, interval_ms=0)
    loop = ArchiveLoop(parts.shards, parts.journal, policy, parts.brake, Runtime(), patient_threads(2), parts.damages)
    broker = LocalBroker(parts)
    await broker.start()
    await broker.create_topic(ANYBODY, "t", 3, {})
    for number, count in ((0, 10), (1, 3_000), (2, 1_000)):
        await broker.produce(ANYBODY, "t", numbered(0, count), ProduceOptions(partition=number))
    store.hold(MANIFESTS_PREFIX)
    assert loop.begin_due() == [1, 2], "the largest first, as many as there are threads"
    assert loop.begin_due() == [], "the third waits"
    await store.arrived.wait()
    store.gate.set()
    await loop.all_ended()
    assert loop.begin_due() == [0]
    await loop.all_ended()
    assert [shard.wal_bytes for shard in broker.status().shards] == [0, 0, 0]
    await loop.close()
    await broker.aclose()


async def test_a_shard_whose_pass_hangs_does_not_keep_the_others_waiting() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=2, archiver_interval_ms=10) as broker:
        await until(lambda: not any(shard.wal_bytes for shard in broker.status().shards))
        await broker.create_topic(ANYBODY, "t", 2, {})
        gated.hold("manifests/0000/")
        await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=0))
        await gated.arrived.wait()
        for first in range(0, 15, 5):
            await broker.produce(ANYBODY, "t", numbered(first, 5), ProduceOptions(partition=1))
            await until(lambda: broker.status().shards[1].wal_bytes == 0)
        assert broker.status().shards[0].wal_bytes > 0
        gated.gate.set()
        await until(lambda: broker.status().shards[0].wal_bytes == 0)


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


async def test_a_command_to_archive_waits_for_a_pass_that_is_under_way() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions())
        gated.hold(MANIFESTS_PREFIX)
        first = asyncio.create_task(broker.archive_now())
        await gated.arrived.wait()
        second = asyncio.create_task(broker.archive_now())
        gated.gate.set()
        await asyncio.gather(first, second)
        log = await partition_log(broker, "t", 0)
        assert log.cold_end == 5
