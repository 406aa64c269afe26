"""delete-records on a partition: its log start moves to the offset, other partitions keep theirs, and segments without
any records left leave the list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.segment_lists import (
    PARTITIONS,
    PLACE,
    SHARD,
    TOPIC_ID,
    TOPICS,
    Pass,
    dense,
    last_pass_of,
    log_starts,
    passes_of,
    runs,
)

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_log import CHANGES_MAX, ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, applied
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.object_store import Body
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.log_starts import delete_records, deleted_below


@given(TOPICS, st.sampled_from(PARTITIONS), st.integers(0, 40))
def test_only_records_of_the_partition_below_the_offset_are_gone(topic: TopicState, number: int, offset: int) -> None:
    offset = min(offset, topic.partition(number).cold_end)
    before = log_starts(topic)
    change = deleted_below(topic, number, offset)
    if offset <= topic.partition(number).log_start_offset:
        assert change is None
        return
    assert change is not None
    shard = ShardManifest(SHARD, 0, topics={TOPIC_ID: topic})
    after = applied(shard, ManifestChange(ChangeKind.DELETE_RECORDS, {TOPIC_ID: change})).topics[TOPIC_ID]
    assert log_starts(after) == {**before, number: offset}
    needed = [
        segment
        for segment in topic.segments
        if any(span.last_offset >= log_starts(after)[span.partition] for span in segment.spans)
    ]
    assert list(after.segments) == needed


async def a_log(store: MemoryObjectStore, topic: TopicState) -> ShardLog:
    log = ShardLog(store, SHARD, Runtime())
    await log.latest()
    await log.append(passes_of(topic))
    return log


async def test_it_is_one_version_that_says_so_and_none_if_nothing_changes() -> None:
    log = await a_log(MemoryObjectStore(), dense([Pass({0: 5, 1: 5}), Pass({0: 5}), Pass({0: 5, 1: 5})]))
    after = await delete_records(log, PLACE, 0, 12)
    assert after.recorded is not None
    assert (after.version, after.recorded.kind) == (1, ChangeKind.DELETE_RECORDS)
    topic = after.topics[TOPIC_ID]
    assert log_starts(topic) == {0: 12, 1: 0}
    assert runs(topic) == [0, 2], "the first segment has records of partition 1, and the offset cuts the last one"
    for offset in (0, 12):
        assert await delete_records(log, PLACE, 0, offset) is after
    everything = (await delete_records(log, PLACE, 0, 1_000)).topics[TOPIC_ID]
    assert (everything.partition(0).log_start_offset, everything.partition(0).cold_end) == (15, 15)
    assert runs(everything) == [0, 2]
    assert runs((await delete_records(log, PLACE, 1, 5)).topics[TOPIC_ID]) == [2]


async def test_a_topic_without_archived_records_has_none_to_delete() -> None:
    log = ShardLog(MemoryObjectStore(), SHARD, Runtime())
    assert (await delete_records(log, PLACE, 0, 7)).version == -1


class _BusyStore(MemoryObjectStore):
    """Another worker archives a pass before each of the next `rivals` creates."""

    def __init__(self) -> None:
        super().__init__()
        self.rivals = 0

    async def create(self, key: str, data: Body) -> str:
        if self.rivals:
            rivals, self.rivals = self.rivals - 1, 0
            log = ShardLog(self, SHARD, Runtime())
            passes = (await log.latest()).topics[TOPIC_ID].next_run
            await log.append(last_pass_of(dense([Pass({0: 5})] * (passes + 1))))
            self.rivals = rivals
        return await super().create(key, data)


async def test_other_workers_versions_are_kept() -> None:
    store = _BusyStore()
    log = await a_log(store, dense([Pass({0: 5})] * 2))
    store.rivals = CHANGES_MAX - 1
    topic = (await delete_records(log, PLACE, 0, 5)).topics[TOPIC_ID]
    assert (log_starts(topic), runs(topic)) == ({0: 5}, list(range(1, 2 + CHANGES_MAX - 1)))


async def test_rivals_that_never_rest_are_a_conflict() -> None:
    store = _BusyStore()
    log = await a_log(store, dense([Pass({0: 5})]))
    store.rivals = CHANGES_MAX
    with pytest.raises(Conflict):
        await delete_records(log, PLACE, 0, 5)
