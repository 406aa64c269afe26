"""The log of a shard's manifests: an appender succeeds or starts over, lists are read when they are needed, and no
number that was collected is won again."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.storage.archive_scenes import ManualClock, lost_answer
from tests.storage.shard_histories import SHARD, TOPIC, TOPIC_ID, TopicHistory

from tidelog.storage.errors import Conflict, Corrupt, Unavailable
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.manifests.topic_state import Totals
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


def log_of(store: ObjectStore, clock: ManualClock | None = None) -> ShardLog:
    return ShardLog(store, SHARD, Runtime(clock=clock) if clock else Runtime())


async def appended(log: ShardLog, history: TopicHistory, steps: int) -> ShardManifest:
    """`steps` random changes, through `log`."""
    for _ in range(steps):
        change = history.step()
        history.manifest = await log.append(change)
    return history.manifest


async def whole(store: ObjectStore) -> ShardManifest:
    """The newest version with all lists, read by a new process."""
    log = log_of(store)
    newest = await log.latest()
    return await log.with_lists(newest, newest.topics)


async def test_a_shard_without_a_manifest_has_an_empty_one(store: MemoryObjectStore) -> None:
    assert await log_of(store).latest() == ShardManifest(SHARD)


async def test_a_new_process_reads_what_was_appended(store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small bounds, so that lists are written again and again."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 4)
    history = TopicHistory(Random(7))
    log = log_of(store)
    await log.latest()
    for _ in range(12):
        await appended(log, history, 5)
        found = await whole(store)
        topic, expected = found.topics[TOPIC_ID], history.manifest.topics[TOPIC_ID]
        assert list(topic.segments) == list(expected.segments)
        assert topic.all_partitions == expected.all_partitions
        assert topic.totals == Totals().after((), list(topic.segments)), "without a list one knows the sums"
        assert (found.floor, found.head) == (history.manifest.floor, history.manifest.head)
    lists = {info.key async for info in list_all(store, "manifests/0003/lists/")}
    live = {topic.stored.key for topic in history.manifest.topics.values() if topic.stored}
    garbage = {each.key for each in history.manifest.garbage}
    assert len(lists) > 3
    assert lists <= live | garbage, "every list that was replaced is garbage"


async def test_opening_takes_three_requests_and_an_append_one(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 4)
    history = TopicHistory(Random(8))
    first = log_of(store)
    await first.latest()
    await appended(first, history, 30)
    counting = CountingObjectStore(store)
    log = log_of(counting)
    opened = await log.with_lists(await log.latest(), [TOPIC_ID])
    assert opened.topics[TOPIC_ID].base is not None
    usage = counting.usage()
    assert (usage.requests(Verb.LIST), usage.requests(Verb.GET), usage.requests()) == (1, 2, 3)
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 10_000)
    before = counting.usage()
    await log.append(history.archived())
    assert (counting.usage() - before).requests() == (counting.usage() - before).requests(Verb.CREATE) == 1


async def test_of_two_that_append_one_wins_and_the_other_starts_over(store: MemoryObjectStore) -> None:
    one, two = log_of(store), log_of(store)
    await one.latest()
    await two.latest()
    history = TopicHistory(Random(9))
    won = await one.append(history.archived())
    with pytest.raises(Conflict):
        await two.append(ManifestChange(ChangeKind.SWEEP))
    assert two.known is None
    assert await two.latest() == won
    assert (await two.append(ManifestChange(ChangeKind.SWEEP))).version == 1


async def test_a_change_that_does_not_fit_the_newest_version_is_a_conflict(store: MemoryObjectStore) -> None:
    log = log_of(store)
    await log.latest()
    with pytest.raises(Conflict, match="does not fit version -1"):
        await log.append(ManifestChange(ChangeKind.MERGE, {TOPIC_ID: TopicChange(TOPIC, removed=("gone",))}))
    assert [version async for version in log.versions()] == []


async def test_ones_own_version_after_a_lost_answer_is_won(store: MemoryObjectStore) -> None:
    history = TopicHistory(Random(10))
    change = history.archived()
    log = log_of(lost_answer(store, 0))
    with pytest.raises(Unavailable):
        await log.append(change)
    assert (await log.append(change)).version == 0
    assert (await log_of(store).latest()).version == 0


async def test_a_number_that_was_collected_is_not_won_again(store: MemoryObjectStore) -> None:
    """A worker stalls between reading version 2 and appending version 3. Meanwhile version 3 was appended and
    collected."""
    clock, history = ManualClock(), TopicHistory(Random(11))
    other = log_of(store)
    await other.latest()
    await appended(other, history, 3)
    stalled = log_of(store, clock)
    await stalled.latest()
    newest = await appended(other, history, 4)
    for version in range(6):
        await other.delete(version)
    clock.now_s += FLOOR_TRUST_S + 1
    with pytest.raises(Conflict, match="was used and collected"):
        await stalled.append(ManifestChange(ChangeKind.ARCHIVE, floor=Floor(10_000, 9)))
    assert (await stalled.latest()).version == newest.version


async def test_a_number_that_was_collected_is_not_won_by_a_rival_that_restored_its_predecessor(
    store: MemoryObjectStore,
) -> None:
    """Two workers want the same change, which adds no segment. Both stall, and both versions are collected. The rival
    then creates its version again, and tags follow content: only the writer's id in it tells the two apart."""
    clock, sweep = ManualClock(), ManifestChange(ChangeKind.SWEEP)
    stalled, rival, other = log_of(store, clock), log_of(store, clock), log_of(store)
    await stalled.latest()
    await rival.latest()
    assert (await stalled.append(sweep)).version == 0
    await other.latest()
    for _ in range(3):
        await other.append(sweep)
    for version in range(3):
        await other.delete(version)
    clock.now_s += FLOOR_TRUST_S + 1
    with pytest.raises(Conflict):
        await rival.append(sweep)
    with pytest.raises(Conflict, match="was used and collected"):
        await stalled.append(sweep)


async def test_after_a_long_pause_the_own_predecessor_proves_the_append(store: MemoryObjectStore) -> None:
    clock, counting = ManualClock(), CountingObjectStore(store)
    log = log_of(counting, clock)
    await log.latest()
    await log.append(ManifestChange(ChangeKind.ARCHIVE, floor=Floor(1, 1)))
    clock.now_s += FLOOR_TRUST_S + 1
    before = counting.usage()
    await log.append(ManifestChange(ChangeKind.ARCHIVE, floor=Floor(2, 1)))
    spent = counting.usage() - before
    assert (spent.requests(Verb.CREATE), spent.requests(Verb.HEAD), spent.requests()) == (1, 1, 2)


async def test_the_newest_version_costs_one_head_if_it_is_known(store: MemoryObjectStore) -> None:
    clock, counting = ManualClock(), CountingObjectStore(store)
    reader, writer = log_of(counting, clock), log_of(store)
    empty = await reader.latest()
    before = counting.usage()
    assert await reader.newest() == empty
    spent = counting.usage() - before
    assert spent.requests() == spent.requests(Verb.HEAD) == 1
    await writer.latest()
    made = await writer.append(ManifestChange(ChangeKind.SWEEP))
    assert await reader.newest() == made
    clock.now_s += FLOOR_TRUST_S + 1
    before = counting.usage()
    assert await reader.newest() == made
    assert (counting.usage() - before).requests(Verb.LIST) == 1, "the next version may have been collected since"


async def test_a_list_that_is_lost_harms_its_topic_only(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 4)
    history = TopicHistory(Random(12))
    log = log_of(store)
    await log.latest()
    manifest = await appended(log, history, 20)
    stored = manifest.topics[TOPIC_ID].stored
    assert stored is not None
    await store.delete(stored.key)
    reader = log_of(store)
    newest = await reader.latest()
    with pytest.raises(Corrupt, match=stored.key):
        await reader.with_lists(newest, [TOPIC_ID])
    other = "f" * 32
    change = replace(history.archived().topics[TOPIC_ID], name="shop", added=(), partitions={})
    assert other in (await reader.append(ManifestChange(ChangeKind.ARCHIVE, {other: change}))).topics
