"""A broker that opens a log finds every committed record, and none twice."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, wal_of
from tests.broker.drafts import draft, numbered, offsets_of, timestamps_of, values_of
from tests.broker.gated_store import GatedObjectStore
from tests.components.s3_endpoint import S3Bucket
from tests.storage.scripted_store import ScriptedObjectStore

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions, ProducerSequence
from tidelog.services.broker.read.partition_reader import Partitions
from tidelog.services.broker.shard.log_opening import LogOpening
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import ProducerFenced, SequenceConflict
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore, Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal_index import WalIndex

Bucket = Callable[[], ObjectStore]
ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)


def s3_store(bucket: S3Bucket) -> ObjectStore:
    return S3ObjectStore(bucket.name, "a/prefix", bucket.endpoint.settings())


def sequence(first: int, epoch: int = 0) -> ProduceOptions:
    return ProduceOptions(partition=0, producer=ProducerSequence("p", epoch, first))


async def test_a_restart_finds_every_record_hot_and_cold(bucket: Bucket) -> None:
    async with running_broker(bucket()) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        for partition in range(3):
            await broker.produce(ANYBODY, "t", numbered(partition * 100, 10), ProduceOptions(partition=partition))
        await broker.archive_now()
        for partition in range(2):
            await broker.produce(ANYBODY, "t", numbered(partition * 100 + 10, 10), ProduceOptions(partition=partition))
    for restart in range(3):
        async with running_broker(bucket()) as broker:
            for partition, count in ((0, 20), (1, 20), (2, 10)):
                fetched = await broker.fetch(ANYBODY, "t", partition, 0, ALL)
                assert offsets_of(fetched) == list(range(count))
                assert values_of(fetched) == [b"%d" % n for n in range(partition * 100, partition * 100 + count)]
            (answer,) = await broker.produce(
                ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=2, expected_offset=10)
            )
            assert answer.base_offset == 10, restart
            await broker.delete_topic(ANYBODY, "t")
            await broker.create_topic(ANYBODY, "t", 3, {})
            for partition, count in ((0, 20), (1, 20), (2, 10)):
                await broker.produce(
                    ANYBODY, "t", numbered(partition * 100, count), ProduceOptions(partition=partition)
                )
            if restart == 1:
                await broker.archive_now()


@pytest.mark.parametrize("archived", [False, True])
async def test_a_retry_after_a_restart_is_in_the_log_once(bucket: Bucket, archived: bool) -> None:
    async with running_broker(bucket()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"a", b"b"], timestamps=[8, 6]), sequence(0))
        await broker.produce(ANYBODY, "t", draft([b"c", b"d"], timestamps=[7, 9]), sequence(2))
        if archived:
            await broker.archive_now()
    async with running_broker(bucket()) as broker:
        (again,) = await broker.produce(ANYBODY, "t", draft([b"c", b"d"], timestamps=[7, 9]), sequence(2))
        assert (again.base_offset, again.count, again.timestamp_ms, again.duplicate) == (2, 2, 9, True)
        with pytest.raises(SequenceConflict) as raised:
            await broker.produce(ANYBODY, "t", numbered(0, 1), sequence(5))
        assert raised.value.expected_sequence == 4
        (new,) = await broker.produce(ANYBODY, "t", draft([b"e"]), sequence(4))
        assert (new.base_offset, new.duplicate) == (4, False)
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"a", b"b", b"c", b"d", b"e"]


async def test_an_old_epoch_is_shut_out_after_a_restart_too(bucket: Bucket) -> None:
    async with running_broker(bucket()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 1), sequence(0, epoch=4))
        await broker.archive_now()
    async with running_broker(bucket()) as broker:
        with pytest.raises(ProducerFenced) as raised:
            await broker.produce(ANYBODY, "t", numbered(0, 1), sequence(1, epoch=3))
        assert raised.value.current_epoch == 4


async def test_a_batch_in_flight_when_a_broker_died_is_there_whole_or_not_at_all() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    dying = open_broker(Settings(store="memory:", shards=1), Runtime(), store=gated)
    await dying.start()
    await dying.create_topic(ANYBODY, "t", 1, {})
    await dying.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
    gated.hold()
    lost = asyncio.create_task(dying.produce(ANYBODY, "t", numbered(3, 3), TO_ZERO))
    await gated.arrived.wait()
    async with running_broker(inner, shards=1) as broker:
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1", b"2"]
        (answer,) = await broker.produce(ANYBODY, "t", numbered(3, 3), TO_ZERO)
        assert answer.base_offset == 3
        gated.gate.set()  # the dead broker's PUT arrives at last, and is refused
        assert (await asyncio.gather(lost, return_exceptions=True))[0].__class__.__name__ == "Fenced"
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"%d" % n for n in range(6)]
    await dying.aclose()


async def test_many_partitions_of_a_shard_are_opened_with_its_manifest_which_is_read_once() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    async with running_broker(counting) as broker:
        await broker.create_topic(ANYBODY, "t", 2_000, {})
        names = list(range(2_000))
        await broker.produce(ANYBODY, "t", draft([b"v"] * 2_000, partitions=names), ProduceOptions())
        await broker.archive_now()
    before = counting.usage()
    async with running_broker(counting, archiver_upkeep=False) as broker:
        assert (counting.usage() - before).requests() < 30
        await broker.fetch(ANYBODY, "t", 1_234, 0, ALL)
        loaded = counting.usage()
        for number in range(0, 2_000, 10):
            assert values_of(await broker.fetch(ANYBODY, "t", number, 0, ALL)) == [b"v"]
        assert (counting.usage() - loaded).requests(Verb.GET, kind=Kind.MANIFEST) <= 2, "the other shard's"


async def test_partitions_added_later_are_spread_and_usable_after_a_restart(bucket: Bucket) -> None:
    async with running_broker(bucket()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
        await broker.alter_topic(ANYBODY, "t", 5, {})
        await broker.produce(ANYBODY, "t", numbered(5, 2), ProduceOptions(partition=4))
    async with running_broker(bucket()) as broker:
        assert values_of(await broker.fetch(ANYBODY, "t", 4, 0, ALL)) == [b"5", b"6"]


async def test_fewer_shards_in_the_settings_lose_no_partition() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=4) as broker:
        await broker.create_topic(ANYBODY, "t", 4, {})
        await broker.produce(ANYBODY, "t", draft([b"v"] * 4, partitions=[0, 1, 2, 3]), ProduceOptions())
    async with running_broker(store, shards=1) as broker:
        for partition in range(4):
            assert values_of(await broker.fetch(ANYBODY, "t", partition, 0, ALL)) == [b"v"]


async def test_stopping_commits_what_was_taken_and_refuses_what_comes_later(store: ObjectStore) -> None:
    broker = open_broker(Settings(store="memory:", flush_interval_ms=3_600_000), Runtime(), store=store)
    await broker.start()
    await broker.create_topic(ANYBODY, "t", 1, {})
    await broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
    waiting = [asyncio.create_task(broker.produce(ANYBODY, "t", numbered(n, 1), TO_ZERO)) for n in (1, 2)]
    await asyncio.sleep(0)
    stopping = asyncio.create_task(broker.aclose())
    answers = await asyncio.gather(*waiting)
    await stopping
    assert [answer.base_offset for (answer,) in answers] == [1, 2]
    assert not broker.status().ready


@pytest.mark.parametrize("kind", ["hot", "cold"])
async def test_a_broker_on_minio_keeps_what_it_acknowledged(minio_bucket: S3Bucket, kind: str) -> None:
    async with running_broker(s3_store(minio_bucket), flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        await asyncio.gather(*(broker.produce(ANYBODY, "t", numbered(n, 1), ProduceOptions()) for n in range(40)))
        if kind == "cold":
            await broker.archive_now()
    async with running_broker(s3_store(minio_bucket)) as broker:
        fetched = [await broker.fetch(ANYBODY, "t", partition, 0, ALL) for partition in range(2)]
        assert sorted(int(value) for one in fetched for value in values_of(one)) == list(range(40))
        assert all(timestamp > 10**12 for one in fetched for timestamp in timestamps_of(one))
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.LATEST)) == fetched[0].high_watermark


async def test_entries_that_the_floor_passes_while_headers_are_read_are_dropped() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for partition in range(2):
            await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=partition))
    scripted = ScriptedObjectStore(store)
    floor = ManifestChange(ChangeKind.ARCHIVE, floor=Floor(2, 1))
    scripted.before = partial(ShardLog(store, 0, Runtime()).change, (), lambda _: floor)
    log = await LogOpening(wal_of(scripted), WalIndex(scripted, 0)).read(3)
    assert log.floor == 2
    assert [entry.header.seq for entry in log.entries] == [2]


async def test_a_retry_after_a_restart_is_answered_with_the_largest_timestamp_of_all_that_is_read_of_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch comes in several reads, and the first of them holds the largest timestamp."""
    store = MemoryObjectStore()
    options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
    batch = draft([b"v"] * 5, timestamps=[9_000, 2_000, 3_000, 1_000, 5_000])
    async with running_broker(store, shards=1) as first:
        await first.create_topic(ANYBODY, "t", 1, {})
        (answer,) = await first.produce(ANYBODY, "t", batch, options)
        assert answer.timestamp_ms == 9_000
        await first.archive_now()
    async with running_broker(store, shards=1) as second:
        whole = second._parts.reader.read

        async def two_at_once(
            partitions: Partitions, state: PartitionState, offset: int, limits: FetchLimits
        ) -> tuple[Sequence[pa.RecordBatch], int]:
            return await whole(partitions, state, offset, replace(limits, max_records=2))

        monkeypatch.setattr(second._parts.reader, "read", two_at_once)
        (again,) = await second.produce(ANYBODY, "t", batch, options)
        assert (again.duplicate, again.timestamp_ms) == (True, 9_000)
