"""Moves the log starts of a topic's partitions, in one change: for retention, and for Kafka's ``DeleteRecords``.

A segment belongs to many partitions. It leaves the list when each of its spans lies below the log start of its
partition; until then it stays whole, and its dead spans are not read. `PartitionSpans` finds these segments by columns,
because a topic may have hundreds of thousands of spans. All but `delete_records` is pure.

The objects of such segments are deleted a grace later. A segment that a log start cuts stays whole, and the records
below it go with the segment or at its next merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from tidelog.storage.manifests.json_envelope import Ints
from tidelog.storage.manifests.segment_columns import SegmentColumns
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.segments.topic_segment import SegmentPlace

REMOVED_PER_STEP = 5_000
"""A version removes no more segments than this. The others are dead, and the next step of retention removes them."""


@dataclass(frozen=True)
class PartitionSpans:
    """The spans of a topic, partition by partition, each by offset: `order` has their places in `columns`. Partition
    ``numbers[n]`` has those at ``order[first[n]:end[n]]``, and its state is ``states[n]``. `group` is the n of each."""

    columns: SegmentColumns
    order: Ints
    numbers: Ints
    first: Ints
    end: Ints
    group: Ints
    states: tuple[ColdState, ...]

    @property
    def log_starts(self) -> Ints:
        return np.array([state.log_start_offset for state in self.states], np.int64)

    def dead_segments(self, log_starts: Ints) -> tuple[str, ...]:
        """Segments that have no record from these log starts on, at most `REMOVED_PER_STEP`, the oldest first."""
        alive = self.columns.last_offset[self.order] >= log_starts[self.group]
        dead = np.ones(len(self.columns), np.bool_)
        dead[self.columns.segment_of_span[self.order[alive]]] = False
        return tuple(self.columns.keys[at] for at in np.flatnonzero(dead)[:REMOVED_PER_STEP].tolist())

    def change(self, topic: str, log_starts: Ints) -> TopicChange | None:
        """The change that lets the logs begin at `log_starts`, none of which may be less than it is; None if nothing
        changes."""
        moved = np.flatnonzero(log_starts > self.log_starts).tolist()
        dead = self.dead_segments(log_starts)
        if not moved and not dead:
            return None
        states = {int(self.numbers[at]): replace(self.states[at], log_start_offset=int(log_starts[at])) for at in moved}
        return TopicChange(topic, removed=dead, partitions=states)


def spans_of(topic: TopicState) -> PartitionSpans:
    """The spans of `topic`, whose list was read."""
    columns = topic.segments.columns
    numbers, first = np.unique(columns.sorted_partitions, return_index=True)
    end = np.append(first, len(columns.partition))[1:]
    group = np.repeat(np.arange(len(numbers)), end - first)
    states: Mapping[int, ColdState] = topic.all_partitions
    known = tuple(states.get(number, ColdState()) for number in numbers.tolist())
    return PartitionSpans(columns, columns.by_partition, numbers, first, end, group, known)


def deleted_below(topic: TopicState, partition: int, offset: int) -> TopicChange | None:
    """The change that moves the log start of a partition to `offset`, at most its cold end; None if it begins there or
    later."""
    state = topic.partition(partition)
    assert offset <= state.cold_end, "only archived records are deleted here"
    if offset <= state.log_start_offset:
        return None
    spans = spans_of(topic)
    dead = spans.dead_segments(np.where(spans.numbers == partition, offset, spans.log_starts))
    return TopicChange(topic.name, removed=dead, partitions={partition: replace(state, log_start_offset=offset)})


async def delete_records(log: ShardLog, place: SegmentPlace, partition: int, before_offset: int) -> ShardManifest:
    """Delete the records of `partition` below `before_offset`, or below the cold end if that is less. Returns the
    newest version, whose log may begin later than `before_offset`, or earlier if records up to it are not archived
    yet. Raises `Conflict` if other workers keep being faster; `Unavailable`, `Corrupt`. Running again is always
    right."""

    def plan(manifest: ShardManifest) -> ManifestChange | None:
        topic = manifest.topics.get(place.topic_id)
        if topic is None:
            return None
        change = deleted_below(topic, partition, min(before_offset, topic.partition(partition).cold_end))
        return ManifestChange(ChangeKind.DELETE_RECORDS, {place.topic_id: change}) if change else None

    return await log.change([place.topic_id], plan)
