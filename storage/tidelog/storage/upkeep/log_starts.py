"""Moves the log starts of a topic's partitions, in one change.

A segment belongs to many partitions. It leaves the list when each of its spans lies below the log start of its
partition; until then it stays whole, and its dead spans are not read. `PartitionSpans` finds these segments by columns,
because a topic may have hundreds of thousands of spans. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tidelog.storage.manifests.segment_columns import Ints, SegmentColumns
from tidelog.storage.manifests.shard_manifest import TopicChange
from tidelog.storage.manifests.shard_values import ColdState
from tidelog.storage.manifests.topic_state import TopicState

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
