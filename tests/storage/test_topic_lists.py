"""A version of the manifest stays small, whatever the number of topics, segments and partitions; an append writes few
lists, and a process keeps few of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from tests.storage.shard_histories import SHARD, TOPIC, TOPIC_ID

from tidelog.storage.layout import shard_segment_key
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_lists import LISTS_MIN, LISTS_SHARE
from tidelog.storage.manifests.topic_state import SEGMENT_SPANS
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor import Floor


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


def log_of(store: ObjectStore) -> ShardLog:
    return ShardLog(store, SHARD, Runtime())


async def whole(store: ObjectStore) -> ShardManifest:
    """The newest version with all lists, read by a new process."""
    log = log_of(store)
    newest = await log.latest()
    return await log.with_lists(newest, newest.topics)


def topic_ids(count: int) -> list[str]:
    return [f"{number:032x}" for number in range(count)]


def pass_over(topics: Sequence[str], number: int) -> ManifestChange:
    """Pass `number`, which adds a segment of one partition to each of `topics`."""
    changes, end = {}, (number + 1) * 10
    for topic_id in topics:
        key = shard_segment_key(TOPIC, topic_id, SHARD, f"{number:032x}")
        sha256 = hashlib.sha256(key.encode()).hexdigest()
        segment = TopicSegment(key, number, 0, 1_000, sha256, 1, 2, 3, (SegmentSpan(0, end - 10, end - 1, 10, 100),))
        changes[topic_id] = TopicChange(TOPIC, added=(segment,), partitions={0: ColdState(cold_end=end)})
    return ManifestChange(ChangeKind.ARCHIVE, changes, Floor(number + 1, 1))


PASSES_8 = 8 * (SEGMENT_SPANS + 1) + 1
"""Differences of a topic after eight of them."""


def differences(manifest: ShardManifest) -> int:
    return sum(topic.differences for topic in manifest.topics.values())


@pytest.mark.parametrize(("topics", "most"), [(20, 50), (200, 50), (200, 0)])
async def test_a_version_of_many_topics_has_a_bound_and_each_append_writes_few_lists(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch, topics: int, most: int
) -> None:
    """A bound below eight passes cannot be kept by lists for an eighth of the topics, but eight passes are."""
    monkeypatch.setattr(topic_lists, "VERSION_DIFFERENCES_MAX", most * topics)
    counting, passes = CountingObjectStore(store), 20
    log, lists = log_of(counting), []
    await log.latest()
    for number in range(passes):
        before = counting.usage()
        manifest = await log.append(pass_over(topic_ids(topics), number))
        spent = counting.usage() - before
        lists.append(spent.requests() - 1)
        assert spent.requests() == spent.requests(Verb.CREATE)
        assert differences(manifest) <= (most or PASSES_8) * topics
    assert max(lists) <= max(LISTS_MIN, topics // LISTS_SHARE)
    assert (lists[0] == 0) == (most > 0)
    found = await whole(store)
    assert {len(topic.segments) for topic in found.topics.values()} == {passes}
    assert {topic.partition(0).cold_end for topic in found.topics.values()} == {10 * passes}


async def test_an_append_to_one_topic_makes_a_version_fit_that_others_have_filled(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the lists of the others. One of these is damaged, and stays as it is."""
    topics = topic_ids(20)
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    log = log_of(store)
    for number in range(4):
        await log.append(pass_over(topics, number), await log.latest())
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 1_000)
    for number in range(4, 8):
        manifest = await log.append(pass_over(topics, number))
    damaged = max(topics[1:], key=lambda each: manifest.topics[each].differences)
    stored = manifest.topics[damaged].stored
    assert stored is not None
    await store.delete(stored.key)
    monkeypatch.setattr(topic_lists, "VERSION_DIFFERENCES_MAX", 60)
    fresh = log_of(store)
    await fresh.latest()
    for number in range(8, 14):
        manifest = await fresh.append(pass_over(topics[:1], number))
    assert differences(manifest) <= 60 + manifest.topics[damaged].differences
    assert manifest.topics[damaged].stored == stored
    whole_ones = await fresh.with_lists(manifest, set(topics) - {damaged})
    assert {len(whole_ones.topics[each].segments) for each in topics[1:] if each != damaged} == {8}


async def test_the_log_itself_keeps_no_more_lists_than_its_bound(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    topics, counting = topic_ids(20), CountingObjectStore(store)
    writer = log_of(store)
    for number in range(8):
        newest = await writer.append(pass_over(topics, number), await writer.latest())
    sizes = [topic.stored.size_bytes for topic in newest.topics.values() if topic.stored]
    assert len(sizes) == len(topics)
    log = ShardLog(counting, SHARD, Runtime(), lists_bytes=3 * max(sizes))
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 1_000)
    assert len((await log.with_lists(await log.latest(), topics)).topics) == len(topics)
    appended = await log.append(pass_over(topics, 8))
    assert all(topic.base for topic in appended.topics.values()), "the caller has what it changed"
    before = counting.usage()
    assert log.known is not None
    assert 1 <= sum(topic.base is not None for topic in log.known.topics.values()) <= 5
    await log.append(pass_over(topics, 9), appended)
    assert (counting.usage() - before).requests() == 1, "the caller's lists serve its next append"
    for number, topic_id in enumerate(topics):
        await log.append(pass_over([topic_id], 10 + number))
        assert sum(topic.base is not None for topic in log.known.topics.values()) <= 5
    assert {len(topic.segments) for topic in (await whole(store)).topics.values()} == {11}


async def test_a_list_beyond_the_bound_is_kept_alone(store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each append to a huge topic does not read its list again."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    log = ShardLog(store, SHARD, Runtime(), lists_bytes=1)
    for number, topic_id in enumerate(topic_ids(2)):
        await log.append(pass_over([topic_id], number), await log.latest())
    assert log.known is not None
    assert [topic.base is not None for _, topic in sorted(log.known.topics.items())] == [False, True]


async def test_a_topic_of_a_thousand_partitions_seldom_gets_a_list_and_its_versions_stay_small(
    store: MemoryObjectStore,
) -> None:
    """Each pass adds a span and a state for each partition. The figures are those at `topic_lists.DIFFERENCES_MIN`."""
    log, partitions, passes = log_of(store), range(1_000), 50
    await log.latest()
    for number in range(passes):
        first = 10_000_000 + 300 * number
        spans = tuple(SegmentSpan(partition, first, first + 299, 300, 90_000 + partition) for partition in partitions)
        states = {partition: ColdState(cold_end=first + 300) for partition in partitions}
        key = shard_segment_key(TOPIC, TOPIC_ID, SHARD, f"{number:032x}")
        segment = TopicSegment(key, number, 0, 1 << 26, "ab" * 32, 1, 2, 3, spans)
        change = TopicChange(TOPIC, added=(segment,), partitions=states)
        await log.append(ManifestChange(ChangeKind.ARCHIVE, {TOPIC_ID: change}, Floor(number + 1, 1)))
    sizes = [info.size async for info in list_all(store, "manifests/0003/0")]
    lists = [info.key async for info in list_all(store, "manifests/0003/lists/")]
    assert len(sizes) == passes
    assert max(sizes) < 256 * 1024
    assert 1 <= len(lists) <= passes // 10
