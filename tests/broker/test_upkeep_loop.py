"""Upkeep while a broker works: retention at the right time and no earlier, and the steps after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.broker.drafts import draft, numbered, offsets_of, values_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.logs import partition_log
from tests.broker.set_clock import GRACE_S, SetClock

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.archive.broker_load import IDLE_AFTER_S, BrokerLoad
from tidelog.services.broker.archive.upkeep_loop import PATIENCE_S, SETTLE_S
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.opening import upkeep_limits
from tidelog.services.runtime.wiring import broker_parts
from tidelog.storage.errors import Invalid, OutOfRange
from tidelog.storage.layout import TOPICS_PREFIX
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore, Kind, Usage
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep.rules import Load, UpkeepLimits

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
HOUR_S, HOUR_MS, DAY_MS = 3_600.0, 3_600_000, 86_400_000
AN_HOUR: dict[str, str | int | None] = {"retention.ms": HOUR_MS, "file.delete.delay.ms": 0}


async def a_segment(
    broker: LocalBroker, topic: str = "t", *, records: int = 10, timestamp_ms: int | None = None
) -> None:
    """Write archived records with the present time or `timestamp_ms`."""
    sent = draft([b"v"] * records, timestamps=[timestamp_ms] * records)
    await broker.produce(ANYBODY, topic, sent, TO_ZERO)
    await broker.archive_now()


async def log_start(broker: LocalBroker, topic: str = "t") -> int:
    return (await partition_log(broker, topic, 0)).log_start_offset


async def until_log_start(broker: LocalBroker, offset: int) -> None:
    """Wait until the broker's own loop has done the work."""
    topic = broker.topic(ANYBODY, "t")
    state = await broker.shards.leading(topic.shards[0]).partitions.load(topic, 0)
    await until(lambda: state.log_start_offset == offset)


async def segments_of(store: ObjectStore) -> int:
    return sum([info.key.endswith(".parquet") async for info in list_all(store, TOPICS_PREFIX)])


async def test_old_segments_go_by_themselves_while_produce_continues(store: ObjectStore) -> None:
    clock = SetClock()
    async with running_broker(store, shards=1, archiver_interval_ms=10, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, AN_HOUR)
        offset = 0
        for _ in range(3):
            await broker.produce(ANYBODY, "t", numbered(offset, 5), ProduceOptions())
            offset += 5
            await until(lambda: broker.status().shards[0].wal_bytes == 0)
            clock.pass_time(HOUR_S / 2 + 1)
            await broker.produce(ANYBODY, "t", numbered(offset, 5), ProduceOptions())
            offset += 5
            clock.pass_time(HOUR_S / 2 + 1)
            await until_log_start(broker, offset - 5)
            fetched = await broker.fetch(ANYBODY, "t", 0, offset - 5, ALL)
            assert values_of(fetched) == [b"%d" % n for n in range(offset - 5, offset)]
            with pytest.raises(OutOfRange) as refused:
                await broker.fetch(ANYBODY, "t", 0, offset - 6, ALL)
            assert (refused.value.log_start_offset, refused.value.high_watermark) == (offset - 5, offset)


async def test_the_objects_of_expired_segments_are_deleted_after_the_grace() -> None:
    store, clock = MemoryObjectStore(), SetClock()
    async with running_broker(store, shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, AN_HOUR)
        await a_segment(broker)
        clock.pass_time(2 * HOUR_S)
        await a_segment(broker)
        await broker.upkeep_now()
        assert (await log_start(broker), await segments_of(store)) == (10, 2)
        clock.pass_time(GRACE_S - 60)
        await broker.upkeep_now()
        assert await segments_of(store) == 2, "a query planned before still finds them"
        clock.pass_time(60)
        await broker.upkeep_now()
        assert await segments_of(store) == 1
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 10, ALL)) == list(range(10, 20))


async def test_a_topic_may_keep_expired_segments_longer_than_the_grace() -> None:
    store, clock = MemoryObjectStore(), SetClock()
    async with running_broker(store, shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {**AN_HOUR, "file.delete.delay.ms": 3 * HOUR_MS})
        await a_segment(broker)
        clock.pass_time(2 * HOUR_S)
        await broker.upkeep_now()
        for hours, segments in ((1.0, 1), (1.9, 1), (0.2, 0)):
            clock.pass_time(hours * HOUR_S)
            await broker.upkeep_now()
            assert await segments_of(store) == segments


async def test_a_restart_in_between_continues_and_waits_a_whole_grace(bucket: Callable[[], ObjectStore]) -> None:
    clock, looked = SetClock(), bucket()
    async with running_broker(bucket(), shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, AN_HOUR)
        await a_segment(broker)
        await a_segment(broker)
    clock.pass_time(2 * HOUR_S)
    async with running_broker(bucket(), shards=1, clock=clock) as broker:
        await broker.upkeep_now()
        assert (await log_start(broker), await segments_of(looked)) == (20, 2)
    clock.pass_time(10 * GRACE_S)
    async with running_broker(bucket(), shards=1, clock=clock) as broker:
        await broker.upkeep_now()
        assert await segments_of(looked) == 2
        clock.pass_time(GRACE_S)
        await broker.upkeep_now()
        assert await segments_of(looked) == 0
        assert await partition_log(broker, "t", 0)
        await broker.produce(ANYBODY, "t", numbered(20, 1), TO_ZERO)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 20, ALL)) == [20]
    await looked.aclose()


async def test_shards_that_nobody_asks_for_are_looked_at_once_the_broker_has_settled() -> None:
    counting, clock = CountingObjectStore(MemoryObjectStore()), SetClock()
    async with running_broker(counting, shards=1, clock=clock) as broker:
        for name in ("t", "u"):
            await broker.create_topic(ANYBODY, name, 3, AN_HOUR)
            sent = draft([b"v"] * 30, partitions=[n % 3 for n in range(30)])
            await broker.produce(ANYBODY, name, sent, ProduceOptions())
        await broker.archive_now()
    async with running_broker(counting, shards=1, clock=clock) as broker:
        turns = clock.sleeps
        await until(lambda: clock.sleeps >= turns + 4)
        assert len(broker.shards.leading(0).partitions) == 0, "none is loaded"
        assert broker.shards.led_shard(0).manifest is None
        before = counting.usage()
        clock.pass_time(SETTLE_S)
        await until(lambda: broker.shards.led_shard(0).manifest is not None)
        turns = clock.sleeps
        await until(lambda: clock.sleeps >= turns + 6)
        spent = (counting.usage() - before).counts(kind=Kind.MANIFEST)
        assert spent.lists + spent.gets <= 2, "once for all topics and partitions, unless the archiver has read it"
        clock.pass_time(2 * HOUR_S)
        await until(lambda: (counting.usage() - before).requests(Verb.CREATE, kind=Kind.MANIFEST) >= 2)
        for name in ("t", "u"):
            logs = [await partition_log(broker, name, number) for number in range(3)]
            assert [log.log_start_offset for log in logs] == [10, 10, 10]


async def test_timestamps_of_producers_count_be_they_past_or_future() -> None:
    clock = SetClock()
    async with running_broker(MemoryObjectStore(), shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, AN_HOUR)
        await a_segment(broker, timestamp_ms=clock.now_ms() - 2 * HOUR_MS)
        await broker.upkeep_now()
        assert await log_start(broker) == 10
        await a_segment(broker, timestamp_ms=clock.now_ms() + 10 * HOUR_MS)
        await a_segment(broker)
        clock.pass_time(5 * HOUR_S)
        await broker.upkeep_now()
        assert await log_start(broker) == 10, "the oldest segment is of a time to come, and keeps all after it"
        clock.pass_time(6 * HOUR_S + 1)
        await broker.upkeep_now()
        assert await log_start(broker) == 30


async def test_a_clock_that_is_a_day_ahead_deletes_no_object_before_its_grace() -> None:
    store, clock = MemoryObjectStore(), SetClock()
    async with running_broker(store, shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {"retention.ms": 12 * HOUR_MS})
        await a_segment(broker)
        clock.wall_ahead_ms += DAY_MS
        await broker.upkeep_now()
        assert (await log_start(broker), await segments_of(store)) == (10, 1)


async def test_a_clock_that_was_a_day_behind_is_made_good_when_it_is_right_again() -> None:
    clock = SetClock()
    async with running_broker(MemoryObjectStore(), shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, AN_HOUR)
        await a_segment(broker)
        clock.wall_ahead_ms -= DAY_MS
        clock.pass_time(2 * HOUR_S)
        await broker.upkeep_now()
        assert await log_start(broker) == 0
        clock.wall_ahead_ms += DAY_MS
        await until_log_start(broker, 10)


async def test_retention_altered_at_run_time_counts_from_then_on() -> None:
    clock = SetClock()
    async with running_broker(MemoryObjectStore(), shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, AN_HOUR)
        await a_segment(broker)
        await broker.alter_topic(ANYBODY, "t", None, {"retention.ms": -1})
        clock.pass_time(2 * HOUR_S)
        await broker.upkeep_now()
        assert await log_start(broker) == 0
        await broker.alter_topic(ANYBODY, "t", None, {"retention.ms": HOUR_MS})
        await until_log_start(broker, 10)


async def test_size_and_policy_are_heeded() -> None:
    clock = SetClock()
    async with running_broker(MemoryObjectStore(), shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "sized", 1, {"retention.bytes": 1, "retention.ms": -1})
        await broker.create_topic(
            ANYBODY, "kept", 1, {"cleanup.policy": "compact", "retention.ms": 1, "retention.bytes": 0}
        )
        for _ in range(3):
            await a_segment(broker, "sized")
        keyed = draft([b"v"] * 3, keys=[b"a", b"b", b"c"])
        await broker.produce(ANYBODY, "kept", keyed, TO_ZERO)
        await broker.archive_now()
        clock.pass_time(HOUR_S)
        await broker.upkeep_now()
        assert await log_start(broker, "sized") == 20
        assert offsets_of(await broker.fetch(ANYBODY, "kept", 0, 0, ALL)) == [0, 1, 2]


async def test_without_upkeep_nothing_is_ever_due() -> None:
    counting, clock = CountingObjectStore(MemoryObjectStore()), SetClock()
    async with running_broker(counting, shards=1, archiver_upkeep=False, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, AN_HOUR)
        await a_segment(broker)
        before = counting.usage()
        clock.pass_time(2 * HOUR_S)
        await broker.upkeep_now()
        assert beyond_the_wal(counting.usage() - before) == 0
        assert await log_start(broker) == 0


def beyond_the_wal(usage: Usage) -> int:
    """Requests for segments, manifests and topics. The archiver's requests for its log do not count as upkeep."""
    return usage.requests() - usage.requests(kind=Kind.WAL)


async def test_once_all_is_archived_expired_and_collected_no_request_is_made() -> None:
    counting, clock = CountingObjectStore(MemoryObjectStore()), SetClock()
    async with running_broker(counting, shards=2, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 8, AN_HOUR)
        await broker.produce(ANYBODY, "t", draft([b"v"] * 80, partitions=[n % 8 for n in range(80)]), ProduceOptions())
        await broker.archive_now()
        for _ in range(3):
            clock.pass_time(2 * HOUR_S)
            await broker.upkeep_now()
        assert await segments_of(counting) == 0
        before = counting.usage()
        for _ in range(10):
            clock.pass_time(50.0)
            await broker.upkeep_now()
        assert beyond_the_wal(counting.usage() - before) == 0


async def test_upkeep_waits_for_producers_but_not_for_ever() -> None:
    gated, clock = GatedObjectStore(MemoryObjectStore()), SetClock()
    async with running_broker(gated, shards=2, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 2, AN_HOUR)
        await a_segment(broker)
        gated.hold()
        waiting = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=1)))
        await gated.arrived.wait()
        clock.pass_time(2 * HOUR_S)
        turns = clock.sleeps
        await until(lambda: clock.sleeps >= turns + 3)
        assert await log_start(broker) == 0
        clock.pass_time(PATIENCE_S)
        await until_log_start(broker, 10)
        gated.gate.set()
        await waiting


def levels_of(broker: LocalBroker) -> list[int]:
    """The levels of all segments in the newest version that shard 0 knows."""
    manifest = broker.shards.leading(0).partitions.log.known
    assert manifest is not None
    return [segment.level for topic in manifest.topics.values() for segment in topic.segments]


async def test_large_runs_are_merged_once_the_broker_has_been_idle_for_long() -> None:
    store, clock = MemoryObjectStore(), SetClock()
    async with running_broker(store, shards=1, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {"segment.bytes": 1 << 20})
        for seed in range(2):
            noise = np.random.default_rng(seed).bytes(300_000)
            values = [noise[at : at + 30_000] for at in range(0, len(noise), 30_000)]
            await broker.produce(ANYBODY, "t", draft(values), TO_ZERO)
            await broker.archive_now()
        for pause_s in (0, IDLE_AFTER_S - 60):
            clock.pass_time(pause_s)
            await broker.upkeep_now()
            assert levels_of(broker) == [0, 0]
        clock.pass_time(60)
        await until(lambda: levels_of(broker) == [2])


def test_a_broker_is_idle_only_after_long_quiet() -> None:
    clock, busy = SetClock(), [False]
    load = BrokerLoad(lambda: busy[0], clock)
    assert (load.observe(), load.now()) == (False, Load.QUIET)
    clock.pass_time(IDLE_AFTER_S)
    assert (load.now(), load.observe(), load.observe()) == (Load.IDLE, True, False)
    busy[0] = True
    assert (load.now(), load.observe()) == (Load.BUSY, False)
    busy[0] = False
    assert load.now() is Load.QUIET
    clock.pass_time(IDLE_AFTER_S / 2)
    assert not load.observe()
    clock.pass_time(IDLE_AFTER_S / 2)
    assert load.observe()


def test_a_missing_spill_folder_is_reported_before_the_broker_opens(tmp_path: Path) -> None:
    settings = replace(SETTINGS, archiver_spill_folder=str(tmp_path / "none"))
    with pytest.raises(Invalid, match="cannot write to") as refused:
        broker_parts(settings, Runtime(), MemoryObjectStore())
    assert refused.value.field == "archiver.spill.folder"
    (tmp_path / "none").mkdir()
    assert broker_parts(settings, Runtime(), MemoryObjectStore())


def test_settings_become_the_limits_of_upkeep() -> None:
    limits = upkeep_limits(
        replace(SETTINGS, archiver_memory_bytes=5, archiver_bandwidth_bytes=7, delete_grace_ms=9_000)
    )
    assert limits == UpkeepLimits(memory_bytes=5, bandwidth_bytes=7, grace_s=9.0)
    assert upkeep_limits(SETTINGS).bandwidth_bytes is None
