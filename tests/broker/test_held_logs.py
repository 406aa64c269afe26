"""Damage that keeps the log of a shard slows the producers of that shard alone, tells them why, and ends with it."""

from __future__ import annotations

import hashlib

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import draft, numbered
from tests.broker.logs import partition_log
from tests.broker.set_clock import SetClock
from tests.coordinator.virtual_time import LoopClock, virtually
from tests.storage.damage_by_hand import cut, flip

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.shard.debt_brake import DebtBrake, HeldLog
from tidelog.services.broker.shard.wal_extent import WalExtent
from tidelog.storage.errors import Corrupt, Overloaded
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_entry import EntryKind, WalHeader

LIMIT = 1 << 20


def noise(seed: int) -> list[bytes]:
    """64 KiB that do not compress."""
    return [
        b"".join(hashlib.sha256(b"%d-%d-%d" % (seed, row, part)).digest() for part in range(32)) for row in range(64)
    ]


async def produce(broker: LocalBroker, topic: str, partition: int, seed: int) -> None:
    await broker.produce(ANYBODY, topic, draft(noise(seed)), ProduceOptions(partition=partition))


async def until_refused(broker: LocalBroker, topic: str, partition: int) -> Overloaded:
    for seed in range(100):
        try:
            await produce(broker, topic, partition, seed)
        except Overloaded as error:
            return error
    raise AssertionError("six times the limit was accepted")


async def test_a_held_log_slows_the_produces_to_its_shard_alone() -> None:
    held, clock = {3: HeldLog(1_000, Corrupt("manifests/0003/x", "is damaged"))}, SetClock()
    brake = DebtBrake(lambda: 0, 1_000, clock, lambda: held)
    brake.check({0, 1})
    with pytest.raises(Overloaded, match=r"shard 3: 1,000 of 1,000 bytes .* manifests/0003/x: is damaged"):
        brake.check({1, 3})
    assert brake.figures().pressure == 1
    assert "produces are refused: shard 3" in brake.trouble()
    del held[3]
    brake.check({3})
    assert brake.trouble() == ""


def test_entries_that_the_floor_has_not_passed_are_held() -> None:
    extent = WalExtent()
    extent.adopt(0, ())
    for seq in range(5):
        extent.add(WalHeader(EntryKind.START, 0, seq, 1, "w", f"{seq}", 0), 10)
    extent.cut(floor=1, archived_to=4)
    assert (extent.bytes, extent.held_bytes, extent.passed_bytes) == (10, 30, 40)
    extent.cut(floor=4, archived_to=4)
    assert (extent.bytes, extent.held_bytes, extent.passed_bytes) == (10, 0, 40)


@virtually
async def test_a_damaged_version_refuses_the_producers_of_its_shard_and_no_others() -> None:
    store = MemoryObjectStore()
    async with running_broker(
        store,
        clock=LoopClock(),
        shards=2,
        archiver_interval_ms=0,
        archiver_min_bytes=1,
        archiver_debt_max_bytes=LIMIT,
    ) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for number in range(2):
            await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=number))
        await until(lambda: not any(shard.wal_bytes for shard in broker.status().shards))
        log = ShardLog(store, 0, Runtime())
        key = log.key((await log.append(ManifestChange(ChangeKind.SWEEP), await log.latest())).version)
        saved = (await store.get(key)).data
        await flip(store, key)
        await broker.produce(ANYBODY, "t", numbered(1, 1), ProduceOptions(partition=0))
        await until(lambda: bool(broker.status().damages))
        refused = await until_refused(broker, "t", 0)
        assert key in str(refused)
        assert "shard 0" in str(refused)
        assert "produces are refused: shard 0" in broker.status().reason
        for seed in range(64):
            await produce(broker, "t", 1, seed)
        await until(lambda: broker.status().shards[1].wal_bytes == 0)

        await store.put(key, saved)
        await until(lambda: broker.status().shards[0].wal_bytes == 0, every_s=0.1)
        await produce(broker, "t", 0, 1)
        assert broker.status().reason == ""


@virtually
async def test_all_that_damage_keeps_counts_also_what_is_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of one topic is damaged, so the floor stays, and the log grows by the records of others."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    store, clock = MemoryObjectStore(), LoopClock()
    async with running_broker(store, clock=clock, shards=1) as broker:
        for topic in ("t", "u"):
            await broker.create_topic(ANYBODY, topic, 1, {})
            await broker.produce(ANYBODY, topic, numbered(0, 10), ProduceOptions(partition=0))
        await broker.archive_now()
        manifest = broker.shards.led_shard(0).manifest
        assert manifest is not None
        stored = manifest.topics[broker.topic(ANYBODY, "t").topic_id].stored
        assert stored is not None
        await broker.produce(ANYBODY, "t", numbered(10, 10), ProduceOptions(partition=0))
    saved = (await store.get(stored.key)).data
    await cut(store, stored.key)
    async with running_broker(store, clock=clock, shards=1, archiver_debt_max_bytes=LIMIT) as broker:
        with pytest.raises(Corrupt, match=stored.key):
            await broker.archive_now()
        for seed in range(8):
            await produce(broker, "u", 0, seed)
        with pytest.raises(Corrupt, match=stored.key):
            await broker.archive_now()
        log = await partition_log(broker, "u", 0, fresh=False)
        assert log.cold_end == 10 + 8 * 64
        assert broker.measurements().brake.debt_bytes == 0
        assert stored.key in str(await until_refused(broker, "u", 0))

        await store.put(stored.key, saved)
        await clock.sleep(31)
        await broker.archive_now()
        await produce(broker, "u", 0, 1)
        assert broker.status().damages == []
