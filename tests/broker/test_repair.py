"""A bucket that lost an object is repaired: the loss is recorded, everything else is there byte for byte, and the
bucket verifies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import numbered, offsets_of, values_of
from tests.broker.fast_clock import FastClock
from tests.broker.logs import partition_log
from tests.broker.test_recovery import s3_store
from tests.components.s3_endpoint import S3Bucket
from tests.storage.copy_scenes import Source
from tests.storage.damage_by_hand import Harm, cut, delete, flip

from tidelog.coordinator.recovery.journal_check import JournalCheck
from tidelog.coordinator.topics.journal_topics import JournalTopics
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.archive import archive_damage
from tidelog.storage.bucket.attest import BucketAttestation, TopicHead
from tidelog.storage.bucket.copy.bucket_copy import BucketCopy
from tidelog.storage.bucket.copy.transfer import CopyReport, Transfer
from tidelog.storage.bucket.finding import Severity
from tidelog.storage.bucket.repair.bucket_repair import BucketRepair, RepairPlan
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import Corrupt, RecordsLost
from tidelog.storage.layout import index_prefix, manifests_prefix, numbered_key, wal_prefix
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
PARTITIONS = 3
ROUNDS = 4
COUNT = 10


@pytest.fixture(autouse=True)
def look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers look at damaged objects in each pass, not every half minute."""
    monkeypatch.setattr(archive_damage, "LOOK_AGAIN_S", 0.0)


def entry_key(seq: int) -> str:
    return numbered_key(wal_prefix(0), seq, ".parquet")


async def fill(broker: LocalBroker, rounds: Sequence[int] = range(ROUNDS), *, archived: bool = False) -> None:
    """Write one entry for each partition and round: entry 1 + round * PARTITIONS + partition."""
    for number in rounds:
        for partition in range(PARTITIONS):
            await broker.produce(ANYBODY, "t", numbered(number * COUNT, COUNT), ProduceOptions(partition=partition))
        if archived:
            await broker.archive_now()


def repair_of(store: ObjectStore, *, deep: bool = True) -> BucketRepair:
    return BucketRepair(store, JournalTopics(store, Runtime()), Runtime(), deep=deep)


async def repaired(store: ObjectStore) -> RepairPlan:
    """Repair until nothing is left to do; return the first plan."""
    repair = repair_of(store)
    first = plan = await repair.plan()
    for _ in range(3):
        await repair.apply(plan)
        plan = await repair.plan()
    assert not plan
    assert not plan.unsolved
    return first


async def check_sound(store: ObjectStore, *, losses: int) -> None:
    runtime = Runtime()
    topics = JournalTopics(store, runtime)
    verification = BucketVerification(
        store, deep=True, topics=topics, journal=lambda: JournalCheck(store, runtime, deep=True).findings()
    )
    found = [finding async for finding in verification.findings()]
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []
    assert verification.summary.losses == losses
    heads = [head async for head in BucketAttestation(store, runtime).heads()]
    proved = [head async for head in BucketAttestation(store, runtime, heads).heads()]
    assert proved == heads
    assert all(isinstance(head, TopicHead) for head in proved)


async def check_reads(broker: LocalBroker, lost: Mapping[int, range], end: int = ROUNDS * COUNT) -> None:
    """Check that all records except the lost ones are there byte for byte, and that a reader of lost records learns
    where to continue."""
    for partition in range(PARTITIONS):
        hole = lost.get(partition, range(0))
        offset, values = 0, []
        while offset < end:
            if offset in hole:
                with pytest.raises(RecordsLost) as told:
                    await broker.fetch(ANYBODY, "t", partition, offset, ALL)
                assert (told.value.first_offset, told.value.next_offset) == (hole.start, hole.stop)
                offset = hole.stop
                continue
            fetched = await broker.fetch(ANYBODY, "t", partition, offset, ALL)
            values += values_of(fetched)
            offset = fetched.next_offset
        assert values == [b"%d" % number for number in range(end) if number not in hole], partition


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("harm", [delete, flip])
@pytest.mark.parametrize("seq", [1, 5, 9])
async def test_a_lost_wal_entry(harm: Harm, seq: int, running: bool) -> None:
    store = MemoryObjectStore()
    lost = {(seq - 1) % PARTITIONS: range((seq - 1) // PARTITIONS * COUNT, ((seq - 1) // PARTITIONS + 1) * COUNT)}
    async with running_broker(store, clock=FastClock(100.0), shards=1, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker)
        await harm(store, entry_key(seq))
        if running:
            with pytest.raises(Corrupt, match=entry_key(seq)):
                await broker.archive_now()
            plan = await repaired(store)
            await broker.archive_now()
            await until(lambda: broker.status().damages == [])
            assert broker.status().shards[0].wal_bytes == 0
            await fill(broker, range(ROUNDS, ROUNDS + 1))
            await check_reads(broker, lost, (ROUNDS + 1) * COUNT)
    end = (ROUNDS + running) * COUNT
    if not running:
        plan = await repaired(store)
    assert [shard.entries.keys() for shard in plan.shards] == [{seq}]
    async with running_broker(store, shards=1) as broker:
        await check_reads(broker, lost, end)
        await broker.archive_now()
        await check_reads(broker, lost, end)
        await broker.upkeep_now()
    await check_sound(store, losses=1)
    async with running_broker(store, shards=1) as broker:
        await check_reads(broker, lost, end)


async def test_several_lost_entries_and_the_last_of_a_partition() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker)
        for seq in (1, 2, 7, 12):  # of partitions 0, 1, 0 again, and the last of 2
            await store.delete(entry_key(seq))
        with pytest.raises(Corrupt):
            await broker.archive_now()
        while not await store.list(index_prefix(0)):  # noqa: ASYNC110  # the bucket sends no signal
            await asyncio.sleep(0.001)
        await broker.produce(ANYBODY, "t", numbered(40, 1), ProduceOptions(partition=0))
    plan = await repaired(store)
    losses = {
        (partition, loss.first_offset, loss.next_offset)
        for shard in plan.shards
        for topic in shard.topics
        for partition, lost in topic.losses.items()
        for loss in lost
    }
    assert losses == {(0, 0, 10), (0, 20, 30), (1, 0, 10), (2, 30, 40)}
    async with running_broker(store, shards=1) as broker:
        await broker.archive_now()
        assert offsets_of(await broker.fetch(ANYBODY, "t", 2, 0, ALL)) == list(range(30))
        (answer,) = await broker.produce(ANYBODY, "t", numbered(40, 1), ProduceOptions(partition=2))
        assert answer.base_offset == 40, "no offset is given out twice"
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 10, ALL)) == list(range(10, 20))
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 30, ALL)) == list(range(30, 41))
    await check_sound(store, losses=4)


@pytest.mark.parametrize("harm", [delete, flip, cut])
async def test_a_lost_segment(harm: Harm) -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker, archived=True)
        key = (await partition_log(broker, "t", 1)).segments[2].key
    await harm(store, key)
    plan = await repaired(store)
    assert [topic.removed.keys() for shard in plan.shards for topic in shard.topics] == [{key}]
    async with running_broker(store, shards=1) as broker:
        await check_reads(broker, dict.fromkeys(range(PARTITIONS), range(20, 30)))
    await check_sound(store, losses=PARTITIONS)


@pytest.mark.parametrize("harm", [flip, cut])
@pytest.mark.parametrize("rounds", [1, 3])
async def test_a_damaged_manifest_is_created_again_of_what_is_there(harm: Harm, rounds: int) -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker, range(rounds), archived=True)
        await fill(broker, range(rounds, ROUNDS))
    newest = (await versions_of(store))[-1]
    await harm(store, newest)
    if rounds == 1:
        plan = await repair_of(store).plan()
        assert not plan
        assert [finding.key for finding in plan.unsolved] == [newest], "there is no version before it"
        return
    await repaired(store)
    async with running_broker(store, shards=1) as broker:
        await check_reads(broker, {})
        await broker.archive_now()
        await check_reads(broker, {})
    await check_sound(store, losses=0)


async def versions_of(store: ObjectStore) -> list[str]:
    return [info.key async for info in list_all(store, f"{manifests_prefix(0)}0")]


async def test_a_deleted_manifest_whose_segments_are_there() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker, range(3), archived=True)
        await fill(broker, range(3, 4))
    await store.delete((await versions_of(store))[-1])
    await repaired(store)
    async with running_broker(store, shards=1) as broker:
        await check_reads(broker, {})
    await check_sound(store, losses=0)


async def test_a_sound_bucket_has_nothing_to_repair_while_a_broker_archives() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1, archiver_interval_ms=0, archiver_min_bytes=1) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        for number in range(20):
            await fill(broker, [number])
            plan = await repair_of(store, deep=False).plan()
            assert not plan
            assert not plan.unsolved


async def copied(store: ObjectStore, target: ObjectStore) -> CopyReport:
    runtime = Runtime()
    return await BucketCopy(Transfer(store, target), JournalTopics(store, runtime), "", runtime).run()


async def test_a_copy_names_what_is_lost_and_carries_what_is_recorded() -> None:
    store, target = Source(), MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker)
    await store.delete(entry_key(5))
    report = await copied(store, target)
    assert [finding.key for finding in report.damaged] == [entry_key(5)]
    await repaired(store)
    for bucket in (store, target):
        if bucket is target:
            assert (await copied(store, bucket)).whole
        async with running_broker(bucket, shards=1) as broker:
            await check_reads(broker, {1: range(10, 20)})
        await check_sound(bucket, losses=1)


async def test_a_bucket_on_minio_that_lost_an_entry(minio_bucket: S3Bucket) -> None:
    async with running_broker(s3_store(minio_bucket), shards=1, flush_interval_ms=0, cache_max_bytes=0) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        await fill(broker)
        store = s3_store(minio_bucket)
        await store.delete(entry_key(5))
        with pytest.raises(RecordsLost) as told:
            await broker.fetch(ANYBODY, "t", 1, COUNT, ALL)
        assert (told.value.first_offset, told.value.next_offset) == (10, 20)
        with pytest.raises(Corrupt, match=entry_key(5)):
            await broker.archive_now()
        await repaired(store)
        await broker.archive_now()
        await until(lambda: broker.status().damages == [])
        await check_reads(broker, {1: range(10, 20)})
    await check_sound(store, losses=1)
    await store.aclose()
