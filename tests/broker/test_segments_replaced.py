"""Another process merges or expires segments while a broker's readers page through them: the readers continue, or get
an error that says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.cluster_world import running_world
from tests.broker.drafts import draft, offsets_of
from tests.broker.logs import partition_log
from tests.storage.damage_by_hand import flip
from tests.storage.topic_segments import decode_topic_segment, made_segment

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.cluster.cluster_broker import ClusterBroker
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.errors import OutOfRange, RecordsLost
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import RECORD_SCHEMA, from_stored
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.memory import MemoryObjectStore

AnyBroker = LocalBroker | ClusterBroker
Reader = Callable[[ObjectStore], AbstractAsyncContextManager[AnyBroker]]
BATCHES, BATCH = 6, 10
PARTITIONS = range(2)
RECORDS = BATCHES * BATCH
FEW = FetchLimits(7, 1 << 20)


def time_of(offset: int) -> int:
    return 4_000_000_000_000 + offset


async def fill(broker: AnyBroker) -> None:
    """Make one segment for each batch, which both partitions share."""
    await broker.create_topic(ANYBODY, "t", len(PARTITIONS), {})
    for start in range(0, RECORDS, BATCH):
        times = [time_of(offset) for offset in range(start, start + BATCH)]
        for number in PARTITIONS:
            options = ProduceOptions(partition=number)
            await broker.produce(ANYBODY, "t", draft([b"v"] * BATCH, timestamps=times), options)
        await broker.archive_now()


@asynccontextmanager
async def leading_reader(store: ObjectStore) -> AsyncIterator[AnyBroker]:
    """A broker without a cluster that read its state before any segment was replaced, and keeps nothing in memory."""
    async with running_broker(store, shards=1, cache_max_bytes=0, archiver_upkeep=False) as broker:
        await fill(broker)
        yield broker


@asynccontextmanager
async def other_reader(store: ObjectStore) -> AsyncIterator[AnyBroker]:
    """A broker of a cluster that reads from the bucket what another broker leads."""
    async with running_world({"a": store, "b": store}, shards=1) as world:
        await fill(world.brokers["a"])
        yield world.brokers["b"]


READERS = pytest.mark.parametrize("reader", [leading_reader, other_reader])


class Rival:
    """Another process that replaces the segments of the topic."""

    def __init__(self, store: ObjectStore, broker: AnyBroker) -> None:
        self._store = store
        self._log = ShardLog(store, 0, Runtime())
        self._place = SegmentPlace("t", broker.topic(ANYBODY, "t").topic_id, 0)

    async def segments(self) -> list[TopicSegment]:
        topic_id = self._place.topic_id
        manifest = await self._log.with_lists(await self._log.latest(), (topic_id,))
        return list(manifest.topics[topic_id].segments)

    async def merge_and_collect(self) -> TopicSegment:
        """Merge all segments into one and delete the old ones, as after the grace."""
        segments = await self.segments()
        tables = [decode_topic_segment(each, self._place, (await self._store.get(each.key)).data) for each in segments]
        rows = from_stored(pa.concat_tables(tables))
        parts = {
            number: rows.filter(pc.equal(rows["partition"], number)).drop_columns(["partition"]).cast(RECORD_SCHEMA)
            for number in PARTITIONS
        }
        made = made_segment(parts, place=self._place, number=99)
        merged = replace(made.segment, run=segments[-1].run, level=2)
        await self._store.create(merged.key, made.body)
        await self._replace(ChangeKind.MERGE, segments, (merged,), {})
        return merged

    async def expire_and_collect(self, count: int) -> None:
        segments = (await self.segments())[:count]
        starts = {span.partition: span.next_offset for span in segments[-1].spans}
        await self._replace(ChangeKind.EXPIRE, segments, (), starts)

    async def _replace(
        self, kind: ChangeKind, left: list[TopicSegment], added: tuple[TopicSegment, ...], starts: dict[int, int]
    ) -> None:
        topic = (await self._log.latest()).topics[self._place.topic_id]
        states = {number: replace(topic.partition(number), log_start_offset=at) for number, at in starts.items()}
        change = TopicChange("t", tuple(segment.key for segment in left), added, states)
        await self._log.append(ManifestChange(kind, {self._place.topic_id: change}))
        for segment in left:
            await self._store.delete(segment.key)


@READERS
@pytest.mark.parametrize("merged_after", [0, 1, 4, 7])
async def test_a_reader_continues_through_segments_that_were_merged_and_deleted(
    reader: Reader, merged_after: int
) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        rival = Rival(store, broker)
        read, turn, offset = [], 0, 0
        while offset < RECORDS:
            fetched = await broker.fetch(ANYBODY, "t", 0, offset, FEW)
            read += offsets_of(fetched)
            offset = fetched.next_offset
            if turn == merged_after:
                await rival.merge_and_collect()
            turn += 1
        assert read == list(range(RECORDS))


@READERS
async def test_a_time_is_found_in_segments_that_were_merged_and_deleted(reader: Reader) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        await broker.fetch(ANYBODY, "t", 0, 0, FEW)
        await Rival(store, broker).merge_and_collect()
        assert await broker.resolve(ANYBODY, "t", 0, Position(Anchor.TIMESTAMP, time_of(33))) == 33


@READERS
async def test_a_reader_of_expired_records_gets_the_range(reader: Reader) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        first = await broker.fetch(ANYBODY, "t", 0, 0, FEW)
        await Rival(store, broker).expire_and_collect(3)
        with pytest.raises(OutOfRange) as raised:
            await broker.fetch(ANYBODY, "t", 0, first.next_offset + BATCH, FEW)
        assert (raised.value.log_start_offset, raised.value.high_watermark) == (3 * BATCH, RECORDS)
        assert offsets_of(await broker.fetch(ANYBODY, "t", 0, 3 * BATCH, FEW)) == list(range(3 * BATCH, 3 * BATCH + 7))


@READERS
@pytest.mark.parametrize("harm", ["gone", "flipped"])
async def test_a_segment_that_is_lost_costs_each_partition_its_own_records_in_it(reader: Reader, harm: str) -> None:
    store = MemoryObjectStore()
    async with reader(store) as broker:
        key = (await Rival(store, broker).segments())[2].key
        await (store.delete(key) if harm == "gone" else flip(store, key))
        for number in PARTITIONS:
            assert offsets_of(await broker.fetch(ANYBODY, "t", number, 0, FEW)) == list(range(7))
            with pytest.raises(RecordsLost) as raised:
                await broker.fetch(ANYBODY, "t", number, 2 * BATCH, FEW)
            lost = raised.value
            assert (lost.name, lost.first_offset, lost.next_offset) == (key, 2 * BATCH, 3 * BATCH)
            after = await broker.fetch(ANYBODY, "t", number, lost.next_offset, FEW)
            assert offsets_of(after) == list(range(3 * BATCH, 3 * BATCH + 7))


async def test_the_log_names_the_segments_that_count_now() -> None:
    store = MemoryObjectStore()
    async with leading_reader(store) as broker:
        assert len((await partition_log(broker, "t", 0)).segments) == BATCHES
        merged = await Rival(store, broker).merge_and_collect()
        assert [segment.key for segment in (await partition_log(broker, "t", 0)).segments] == [merged.key]
