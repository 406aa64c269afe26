"""The broker's cost report: every request is assigned to a topic or to none, and stored bytes are listed by topic."""

from __future__ import annotations

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.cluster_world import running_world
from tests.broker.drafts import draft, numbered

from tidelog.services.broker.api.costs import BrokerCosts, ColdFigures, TopicCost
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.shard.wal_extent import WalExtent
from tidelog.services.broker.telemetry.cold_figures import cold_figures
from tidelog.services.broker.telemetry.measurements import Measurements
from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition, shard_segment_key
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange, applied
from tidelog.storage.manifests.shard_values import EMPTY, ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.object_store import list_all
from tidelog.storage.stores.counting import NO_REQUESTS, CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.wal_entry import EntryKind, Span, WalHeader

TOPIC_ID, NOW_MS = "1d" * 16, 1_000


def segment(base: int, last: int, *, records: int | None = None, size_bytes: int = 100, run: int = 0) -> TopicSegment:
    records = last - base + 1 if records is None else records
    return TopicSegment(
        key=shard_segment_key("t", TOPIC_ID, 0, f"{base:032x}"),
        run=run,
        level=0,
        size_bytes=size_bytes,
        sha256=f"{base}-{last}-{size_bytes}",
        min_timestamp_ms=0,
        max_timestamp_ms=0,
        archived_at_ms=0,
        spans=(SegmentSpan(0, base, last, records, 10 * size_bytes),),
    )


def of(costs: BrokerCosts, topic: str) -> TopicCost:
    (found,) = (each for each in costs.topics if each.topic == topic)
    return found


def header(seq: int, at_ms: int, **records: int) -> WalHeader:
    spans = tuple(Span(TopicPartition(topic, 0), 0, count, 0) for topic, count in records.items())
    return WalHeader(EntryKind.RECORDS, 0, seq, 1, "w", f"e{seq}", at_ms, spans)


async def test_topics_and_the_rest_add_up_to_every_request_made() -> None:
    counted = CountingObjectStore(MemoryObjectStore())
    async with running_broker(counted, shards=2) as broker:
        for number in range(6):
            await broker.produce(ANYBODY, f"t{number % 3}", numbered(number, 50), ProduceOptions())
        await broker.archive_now()
        costs = await broker.costs(ANYBODY)
        made = counted.usage().counts()
        paid = sum((topic.requests for topic in costs.topics), costs.rest)
    for verb in ("puts", "gets", "lists", "heads", "deletes"):
        assert getattr(paid, verb) == pytest.approx(getattr(made, verb))
    assert all(topic.requests.puts > 2 for topic in costs.topics), "a part of the log and of a manifest, two segments"
    assert costs.rest.puts > 0, "epochs and topics are nobody's"


async def test_bytes_are_hot_until_they_are_archived_and_cold_then() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.produce(ANYBODY, "t", draft([b"x" * 1_000] * 100), ProduceOptions())
        hot = of(await broker.costs(ANYBODY), "t")
        assert (hot.archive.debt_bytes, hot.archive.cold.cold_bytes) == (hot.archive.hot_bytes, 0)
        assert hot.archive.debt_bytes > 0
        await broker.archive_now()
        cold = of(await broker.costs(ANYBODY), "t")
        lies_there = [info.size async for info in list_all(store, "topics/t/") if info.key.endswith(".parquet")]
    assert (cold.archive.debt_bytes, cold.archive.debt_age_ms) == (0, 0)
    assert cold.archive.hot_bytes == hot.archive.hot_bytes, "it is archived, and not deleted yet"
    assert cold.archive.cold.cold_bytes == cold.counts.archived_bytes == sum(lies_there)
    assert (cold.archive.cold.raw_bytes, cold.archive.cold.records) == (100_000, 100)


async def test_a_broker_that_has_just_started_reads_unknown_state_from_the_bucket() -> None:
    store = MemoryObjectStore()
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 3, {})
        for partition in range(3):
            await broker.produce(ANYBODY, "t", numbered(0, 10), ProduceOptions(partition=partition))
        await broker.archive_now()
    async with running_broker(store) as broker:
        first = of(await broker.costs(ANYBODY), "t")
        assert (first.partitions, first.archive.cold.partitions, first.archive.cold.records) == (3, 3, 30)
        before = broker.measurements().usage
        await broker.costs(ANYBODY)
        assert (broker.measurements().usage - before).requests(Verb.LIST) == 0, "it is known from then on"


async def test_each_broker_of_a_cluster_tells_of_the_shards_that_it_leads() -> None:
    async with running_world(dict.fromkeys(("a", "b"), MemoryObjectStore()), shards=3) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        for partition in range(3):
            await world.brokers["b"].produce(ANYBODY, "t", numbered(0, 10), ProduceOptions(partition=partition))
        costs = [await broker.costs(ANYBODY) for broker in world.brokers.values()]
    assert [(each.broker_id, each.shards, each.shards_total) for each in costs] == [("a", (0, 2), 3), ("b", (1,), 3)]
    assert sum(of(each, "t").partitions for each in costs) == 3
    assert sum(of(each, "t").counts.records_in for each in costs) == 30


async def test_bytes_written_by_upkeep_are_counted_once_and_the_remaining_bytes_shown() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"})
        for keys in (10, 5):
            records = draft([b"v" * 100] * keys, keys=[b"k%d" % n for n in range(keys)])
            await broker.produce(ANYBODY, "t", records, ProduceOptions())
            await broker.archive_now()
        await broker.upkeep_now()
        first = of(await broker.costs(ANYBODY), "t")
        await broker.upkeep_now()
        again = of(await broker.costs(ANYBODY), "t")
    assert first.counts.archived_bytes > 0
    assert first.counts.compacted_bytes > 0
    assert (first.archive.cold.clean_offsets, first.archive.cold.clean_records) == (15, 10)
    assert again.counts == first.counts, "a manifest that is seen again was not written again"


async def test_a_damaged_manifest_is_named() -> None:
    store = MemoryObjectStore()
    async with running_broker(store) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        for partition in range(2):
            await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=partition))
        await broker.archive_now()
        damaged = [info.key async for info in list_all(store, "manifests/0000/")][-1]
        saved = (await store.get(damaged)).data
        await store.put(damaged, b"nothing of the kind")
        costs = await broker.costs(ANYBODY)
        assert of(costs, "t").archive.cold.records == 10, "it is known from what passed through"
    await store.put(damaged, saved)
    async with running_broker(store) as broker:
        await store.put(damaged, b"nothing of the kind")
        with pytest.raises(Corrupt, match=damaged):
            await broker.costs(ANYBODY)


async def test_a_broker_that_has_just_started_asks_once_for_each_shard() -> None:
    store = MemoryObjectStore()
    async with running_broker(store) as broker:
        for number in range(5):
            await broker.create_topic(ANYBODY, f"t{number}", 4, {})
            await broker.produce(ANYBODY, f"t{number}", numbered(0, 100), ProduceOptions())
        await broker.archive_now()
    async with running_broker(store) as broker:
        before = broker.measurements().usage
        costs = await broker.costs(ANYBODY)
        spent = (broker.measurements().usage - before).counts()
        assert sum(topic.archive.cold.records for topic in costs.topics) == 500
        assert (spent.lists, spent.gets) == (2, 2), "two shards, whatever the number of topics and partitions"


def test_bytes_of_a_version_are_counted_by_their_cause() -> None:
    measurements = Measurements()
    small, large = segment(0, 9, size_bytes=100), segment(0, 9, size_bytes=70)
    for kind, written in ((ChangeKind.ARCHIVE, small), (ChangeKind.MERGE, large), (ChangeKind.COMPACT, small)):
        measurements.wrote(kind, [("t", written)])
    measurements.wrote(ChangeKind.EXPIRE, [])
    counts = measurements.topics()["t"]
    assert (counts.archived_bytes, counts.merged_bytes, counts.compacted_bytes) == (100, 70, 100)


def manifest_with(*segments: TopicSegment, state: ColdState = EMPTY) -> ShardManifest:
    change = TopicChange("t", added=segments, partitions={0: state})
    return applied(ShardManifest(0), ManifestChange(ChangeKind.ARCHIVE, {TOPIC_ID: change}), NOW_MS)


def test_the_figures_of_a_compacted_topic_tell_what_is_left() -> None:
    state = ColdState(cold_end=200, clean_end=100)
    figures = cold_figures(manifest_with(segment(0, 99, records=25), segment(100, 199, run=1), state=state))[TOPIC_ID]
    assert (figures.clean_offsets, figures.clean_records, figures.records) == (100, 25, 125)
    assert (figures.segments, figures.cold_bytes, figures.raw_bytes) == (2, 200, 2_000)
    assert figures + ColdFigures() == figures


def test_segments_that_left_a_topic_are_garbage_of_it_also_once_it_is_gone() -> None:
    gone = segment(0, 9, size_bytes=7)
    manifest = manifest_with(gone, segment(10, 19, run=1), state=ColdState(cold_end=20))
    merged = ManifestChange(ChangeKind.MERGE, {TOPIC_ID: TopicChange("t", removed=(gone.key,))})
    figures = cold_figures(applied(manifest, merged, NOW_MS))[TOPIC_ID]
    assert (figures.segments, figures.garbage_objects, figures.garbage_bytes) == (1, 1, 7)
    dropped = applied(manifest, ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(TOPIC_ID,)), NOW_MS)
    figures = cold_figures(dropped)[TOPIC_ID]
    assert (figures.segments, figures.garbage_objects, figures.garbage_bytes) == (0, 2, 107)


def test_an_entry_is_shared_out_to_its_topics_and_leaves_with_the_floor_and_its_deletion() -> None:
    extent = WalExtent()
    extent.add(header(0, 1_000, a=3, b=1), 400)
    extent.add(header(1, 2_000, b=5), 100)
    assert extent.debt_bytes() == {"a": 300, "b": 200}
    assert extent.debt_since_ms() == {"a": 1_000, "b": 1_000}
    extent.cut(1)
    assert extent.debt_bytes() == {"b": 100}
    assert extent.debt_since_ms() == {"b": 2_000}
    assert extent.passed_bytes_of_topics() == {"a": 300, "b": 100}
    assert (extent.bytes, extent.passed_bytes) == (100, 400)
    extent.deleted(1)
    assert extent.passed_bytes == 0
    assert extent.passed_bytes_of_topics() == {}


def test_an_entry_without_records_is_nobodys() -> None:
    extent = WalExtent()
    extent.add(header(0, 1_000), 50)
    assert (extent.bytes, extent.debt_bytes()) == (50, {})
    assert NO_REQUESTS.puts == 0
