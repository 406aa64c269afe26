"""Another process merges or expires segments while a broker's readers page through them: the readers continue, or get
an error that says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.cluster_world import running_world
from tests.broker.drafts import draft, offsets_of
from tests.broker.logs import partition_log

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.cluster.cluster_broker import ClusterBroker
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import OutOfRange, RecordsLost
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.segments.segment_codec import decode_segment, encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore

AnyBroker = LocalBroker | ClusterBroker
Reader = Callable[[ObjectStore], AbstractAsyncContextManager[AnyBroker]]
BATCHES, BATCH = 6, 10
RECORDS = BATCHES * BATCH
FEW = FetchLimits(7, 1 << 20)
TO_ZERO = ProduceOptions(partition=0)


def time_of(offset: int) -> int:
    return 4_000_000_000_000 + offset


async def fill(broker: AnyBroker) -> None:
    """Make one segment for each batch."""
    await broker.create_topic(ANYBODY, "t", 1, {})
    for start in range(0, RECORDS, BATCH):
        times = [time_of(offset) for offset in range(start, start + BATCH)]
        await broker.produce(ANYBODY, "t", draft([b"v"] * BATCH, timestamps=times), TO_ZERO)
        await broker.archive_now()


@asynccontextmanager
async def leading_reader(store: ObjectStore) -> AsyncIterator[AnyBroker]:
    """A broker without a cluster that read its state before any segment was replaced, and keeps nothing in memory."""
    async with running_broker(store, cache_max_bytes=0, archiver_upkeep=False) as broker:
        await fill(broker)
        yield broker


@asynccontextmanager
async def other_reader(store: ObjectStore) -> AsyncIterator[AnyBroker]:
    """A broker of a cluster that reads from the bucket what another broker leads."""
    async with running_world({"a": store, "b": store}, shards=1) as world:
        await fill(world.brokers["a"])
        yield world.brokers["b"]


READERS = pytest.mark.parametrize("reader", [leading_reader, other_reader])


async def manifest_log(store: ObjectStore, broker: AnyBroker) -> ManifestLog:
    topic = await broker.known_topic(ANYBODY, "t")
    return ManifestLog(store, "t", TopicPartition(topic.topic_id, 0))


async def merge_and_collect(store: ObjectStore, log: ManifestLog) -> Manifest:
    """Merge all segments into one and delete the old ones, as after the grace."""
    manifest = await log.latest()
    tables = [decode_segment(segment.key, (await store.get(segment.key)).data) for segment in manifest.segments]
    id_of_its_own = f"{manifest.version:032x}"
    merged = encode_segment("t", manifest.topic_partition, pa.concat_tables(tables), id_of_its_own)
    await store.create(merged.segment.key, merged.body)
    after = await log.append(replace(manifest, segments=(merged.segment,)), ChangeKind.MERGE)
    for segment in manifest.segments:
        await store.delete(segment.key)
    return after


async def expire_and_collect(store: ObjectStore, log: ManifestLog, count: int) -> Manifest:
    manifest = await log.latest()
    left = manifest.segments[count:]
    moved = replace(manifest, segments=left, log_start_offset=left[0].base_offset)
    after = await log.append(moved, ChangeKind.EXPIRE)
    for segment in manifest.segments[:count]:
        await store.delete(segment.key)
    return after


@READERS
@pytest.mark.parametrize("merged_after", [0, 1, 4, 7])
async def test_a_reader_continues_through_segments_that_were_merged_and_deleted(
    reader: Reader, merged_after: int
) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        log = await manifest_log(store, broker)
        read, turn, offset = [], 0, 0
        while offset < RECORDS:
            fetched = await broker.fetch(ANYBODY, "t", 0, offset, FEW)
            read += offsets_of(fetched)
            offset = fetched.next_offset
            if turn == merged_after:
                await merge_and_collect(store, log)
            turn += 1
        assert read == list(range(RECORDS))


@READERS
async def test_a_time_is_found_in_segments_that_were_merged_and_deleted(reader: Reader) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        await broker.fetch(ANYBODY, "t", 0, 0, FEW)
        await merge_and_collect(store, await manifest_log(store, broker))
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, time_of(33))) == 33


@READERS
async def test_a_reader_of_expired_records_gets_the_range(reader: Reader) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        first = await broker.fetch(ANYBODY, "t", 0, 0, FEW)
        await expire_and_collect(store, await manifest_log(store, broker), 3)
        with pytest.raises(OutOfRange) as raised:
            await broker.fetch(ANYBODY, "t", 0, first.next_offset + BATCH, FEW)
        assert (raised.value.log_start_offset, raised.value.high_watermark) == (3 * BATCH, RECORDS)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 3 * BATCH, FEW)) == list(range(3 * BATCH, 3 * BATCH + 7))


@READERS
async def test_a_segment_that_is_gone_though_its_manifest_is_the_newest_is_lost(reader: Reader) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        log = await manifest_log(store, broker)
        await store.delete((await log.latest()).segments[2].key)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 0, FEW)) == list(range(7))
        with pytest.raises(RecordsLost):
            await broker.fetch(ANYBODY, "t", 0, 2 * BATCH, FEW)


async def test_the_log_names_the_segments_that_count_now() -> None:
    store = MemoryObjectStore()
    async with leading_reader(store) as broker:
        assert len((await partition_log(broker, "t", 0)).segments) == BATCHES
        merged = await merge_and_collect(store, await manifest_log(store, broker))
        assert (await partition_log(broker, "t", 0)).segments == merged.segments
