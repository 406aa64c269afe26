"""The partitions of a shard share one version of its manifest: one opening reads it, and all switch together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.storage.damage_by_hand import flip
from tests.storage.record_tables import records_header, spans_of

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.shard import shard_partitions
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
from tidelog.storage.errors import Corrupt, Fenced, NotFound
from tidelog.storage.layout import TopicPartition, shard_segment_key
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_index import IndexedEntry

COUNT = 40
TOPICS = [Topic(name, digit * 32, (0,) * COUNT) for name, digit in (("web", "a"), ("shop", "b"))]
WEB, SHOP = TOPICS
RECORDS = 10
"""Of each partition in an entry and in a pass."""


class Archive:
    """Another process that appends passes of the archiver, each with records of all partitions of some topics."""

    def __init__(self, store: ObjectStore) -> None:
        self.log = ShardLog(store, 0, Runtime())
        self.passes = 0

    async def archive(self, *topics: Topic) -> ShardManifest:
        self.passes += 1
        change = ManifestChange(
            ChangeKind.ARCHIVE, {topic.topic_id: self._added(topic) for topic in topics}, Floor(self.passes, 1)
        )
        return await self.log.append(change, await self.log.latest())

    async def drop(self, topic: Topic) -> ShardManifest:
        change = ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(topic.topic_id,))
        return await self.log.append(change, await self.log.latest())

    def _added(self, topic: Topic) -> TopicChange:
        end, run = self.passes * RECORDS, self.passes - 1
        key = shard_segment_key(topic.name, topic.topic_id, 0, f"{run:032x}")
        spans = tuple(SegmentSpan(number, end - RECORDS, end - 1, RECORDS, 100) for number in range(COUNT))
        segment = TopicSegment(key, run, 0, 1_000, "0" * 64, 1, 2, 3, spans)
        return TopicChange(topic.name, (), (segment,), {number: ColdState(cold_end=end) for number in range(COUNT)})


def entries(count: int, first: int = 0) -> Sequence[IndexedEntry]:
    """Entries of the log with records of all partitions."""
    places = [topic.partition(number) for topic in TOPICS for number in range(COUNT)]
    made = []
    for seq in range(first, first + count):
        header = records_header(spans_of(*((place, seq * RECORDS, RECORDS) for place in places)), seq=seq)
        made.append(IndexedEntry(header, 1_000))
    return made


def partitions_of(store: ObjectStore) -> ShardPartitions:
    runtime = Runtime()
    return ShardPartitions(ShardLog(store, 0, runtime), Wal(store, 0, ParquetWalCodec(), ShardLog(store, 0, runtime)))


@pytest.fixture(autouse=True)
def small_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every topic has a list."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)


@pytest.fixture
def store() -> CountingObjectStore:
    return CountingObjectStore(MemoryObjectStore())


async def list_of(archive: Archive, topic: Topic) -> str:
    stored = (await archive.log.latest()).topics[topic.topic_id].stored
    assert stored is not None
    return stored.key


def spans_left(state: PartitionState) -> list[int]:
    return [span.entry.seq for span in state.spans_from(0)]


async def test_all_partitions_are_opened_by_one_version_and_one_list_for_each_topic(store: CountingObjectStore) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    await archive.archive(*TOPICS)
    partitions.adopt(entries(2))
    before = store.usage()
    states = await asyncio.gather(*(partitions.load(topic, number) for topic in TOPICS for number in range(COUNT)))
    spent = store.usage() - before
    assert (spent.requests(Verb.LIST), spent.requests(Verb.GET), spent.requests()) == (1, 1 + len(TOPICS), 4)
    assert {(state.cold_end, state.high_watermark) for state in states} == {(RECORDS, 2 * RECORDS)}
    found = states[3].cold_span(4)
    assert found is not None
    assert (found.span.partition, found.first_row) == (3, 3 * RECORDS)


async def test_a_topic_that_was_created_here_needs_no_request(store: CountingObjectStore) -> None:
    partitions = partitions_of(store)
    partitions.topic_created(WEB)
    assert (await partitions.load(WEB, 0)).cold_end == 0
    assert store.usage().requests() == 0


async def test_all_partitions_switch_to_a_version_and_drop_what_it_covers(store: CountingObjectStore) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    partitions.adopt(entries(3))
    loaded = [await partitions.load(topic, number) for topic in TOPICS for number in range(3)]
    await archive.archive(*TOPICS)
    newest = await archive.archive(*TOPICS)
    await partitions.apply(newest)
    assert {state.view.version for state in loaded} == {newest.version}
    assert {tuple(spans_left(state)) for state in loaded} == {(2,)}
    late = await partitions.load(WEB, 9)
    assert (late.cold_end, late.high_watermark, spans_left(late)) == (2 * RECORDS, 3 * RECORDS, [2])


async def test_lists_beyond_their_bound_leave_memory_and_are_read_again(
    store: CountingObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_partitions, "LISTS_BYTES", 1)
    archive, partitions = Archive(store), partitions_of(store)
    await archive.archive(*TOPICS)
    partitions.adopt(entries(4))
    states = [await partitions.load(topic, 0) for topic in TOPICS]
    assert in_memory(partitions) == [TOPICS[-1].topic_id]
    assert [state.lacks_list for state in states] == [True] * (len(TOPICS) - 1) + [False]
    for topic, state in zip(TOPICS, states, strict=True):
        await partitions.read_list(state)
        found = state.cold_span(0)
        assert found is not None
        assert topic.topic_id in found.segment.key
        assert in_memory(partitions) == [topic.topic_id]
    newest = await archive.archive(*TOPICS)
    await partitions.apply(newest)
    assert {(state.view.version, state.cold_end) for state in states} == {(newest.version, 2 * RECORDS)}
    assert len(in_memory(partitions)) <= 1


async def test_a_version_with_the_same_lists_is_followed_without_reading_them(
    store: CountingObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_partitions, "LISTS_BYTES", 1)
    archive, partitions = Archive(store), partitions_of(store)
    await archive.archive(*TOPICS)
    partitions.adopt(entries(4))
    states = [await partitions.load(topic, 0) for topic in TOPICS]
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 1_000)
    await archive.archive(TOPICS[0])
    newest = await archive.log.latest()
    before = store.usage()
    await partitions.apply(await partitions.log.latest())
    assert (store.usage() - before).requests(Verb.GET) == 1, "the version"
    assert [state.cold_end for state in states] == [2 * RECORDS, *([RECORDS] * (len(TOPICS) - 1))]
    assert {state.view.version for state in states} == {newest.version}
    await partitions.read_list(states[0])
    found = states[0].cold_span(RECORDS)
    assert found is not None
    assert found.span.base_offset == RECORDS


def in_memory(partitions: ShardPartitions) -> list[str]:
    """The topics whose lists the partitions hold."""
    assert partitions.manifest is not None
    held = {topic_id for topic_id, topic in partitions.manifest.topics.items() if topic.base}
    viewed = {state.topic_partition.topic_id for state in partitions if not state.lacks_list}
    assert viewed <= held
    return sorted(held)


async def test_an_older_version_changes_nothing(store: CountingObjectStore) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    partitions.adopt(entries(3))
    state = await partitions.load(WEB, 0)
    older = await archive.archive(*TOPICS)
    newer = await archive.archive(*TOPICS)
    await asyncio.gather(partitions.apply(newer), partitions.apply(older))
    assert (state.view.version, state.cold_end) == (newer.version, 2 * RECORDS)


async def test_records_of_partitions_that_nobody_uses_are_forgotten_once_they_are_archived(
    store: CountingObjectStore,
) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    partitions.adopt(entries(1))
    await partitions.apply(await archive.archive(*TOPICS))
    assert spans_left(await partitions.load(WEB, 0)) == []


async def test_a_damaged_list_harms_its_own_topic(store: CountingObjectStore) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    await archive.archive(*TOPICS)
    partitions.adopt(entries(3))
    web, shop = await partitions.load(WEB, 0), await partitions.load(SHOP, 0)
    newest = await archive.archive(*TOPICS)
    await flip(store, await list_of(archive, SHOP))
    await partitions.apply(await ShardLog(store, 0, Runtime()).read(newest.version))
    assert (web.cold_end, shop.cold_end) == (2 * RECORDS, RECORDS)
    with pytest.raises(Corrupt, match="lists/" + SHOP.topic_id):
        await partitions.refresh(shop)
    with pytest.raises(Corrupt, match="lists/" + SHOP.topic_id):
        await partitions.load(SHOP, 1)
    assert (await partitions.load(WEB, 1)).cold_end == 2 * RECORDS


async def test_a_list_that_was_collected_makes_all_follow_the_newest_version(store: CountingObjectStore) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    await archive.archive(*TOPICS)
    partitions.adopt(entries(3))
    web, collected = await partitions.load(WEB, 0), await list_of(archive, SHOP)
    newest = await archive.archive(*TOPICS)
    await store.delete(collected)
    assert (await partitions.load(SHOP, 0)).cold_end == 2 * RECORDS
    assert web.view.version == newest.version


async def test_a_topic_that_left_the_shard_is_deleted_for_its_readers(store: CountingObjectStore) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    await archive.archive(*TOPICS)
    partitions.adopt(entries(2))
    web, shop = await partitions.load(WEB, 0), await partitions.load(SHOP, 0)
    commit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    web.add_waiter(commit)
    await partitions.apply(await archive.drop(WEB))
    assert commit.done()
    with pytest.raises(NotFound, match="was deleted"):
        web.check_readable(0)
    shop.check_readable(0)


async def test_records_that_this_broker_does_not_know_prove_another_leader(store: CountingObjectStore) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    partitions.adopt(entries(1))
    state, reasons = await partitions.load(WEB, 0), list[str]()
    partitions.on_overtaken = reasons.append
    await archive.archive(WEB)
    await archive.archive(WEB)
    with pytest.raises(Fenced, match="archived up to offset 20"):
        await partitions.refresh(state)
    assert len(reasons) == 1
    assert state.cold_end == 0


async def test_a_partition_that_is_loaded_while_a_version_arrives_shows_it(
    store: CountingObjectStore,
) -> None:
    archive, partitions = Archive(store), partitions_of(store)
    await archive.archive(*TOPICS)
    partitions.adopt(entries(3))
    await partitions.load(WEB, 0)
    newest = await archive.archive(*TOPICS)
    state, _ = await asyncio.gather(partitions.load(SHOP, 0), partitions.apply(newest))
    assert (state.view.version, spans_left(state)) == (newest.version, [2])


async def test_a_partition_with_a_gap_keeps_its_records_for_the_next_try(store: CountingObjectStore) -> None:
    """A load that fails must not forget what the log holds, or the next one would assign its offsets again."""
    partitions = partitions_of(store)
    partitions.adopt(entries(1, first=1))
    for _ in range(2):
        with pytest.raises(Corrupt, match="neither in a segment nor in the WAL"):
            await partitions.load(WEB, 0)
    assert partitions.loaded(TopicPartition(WEB.topic_id, 0)) is None
