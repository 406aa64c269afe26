"""The runs of a topic in a shard, as merging and compaction plan with them.

A topic may have a hundred thousand segments, and plans are made after every version. So plans work on columns
(`SegmentList.columns`), and only the runs that may have to change become objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from tidelog.storage.manifests.segment_list import SegmentList
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.manifests.topic_state import TopicState
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES

FINAL_LEVEL = 2
RECORD_BYTES = 32
"""What a record takes in memory beside its key and value."""


@dataclass(frozen=True, slots=True)
class TopicRun:
    """The sums of a run's segments. `archived_at_ms`: of its oldest record."""

    number: int
    level: int
    size_bytes: int
    raw_bytes: int
    records: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    archived_at_ms: int


def runs_of(segments: SegmentList, *, below_level: int = FINAL_LEVEL + 1, first: int = 0) -> Sequence[TopicRun]:
    """The runs of a level below `below_level`, from number `first` on, in the order of the log."""
    columns = segments.columns
    taken = columns.taken(np.flatnonzero((columns.level < below_level) & (columns.run >= first)))
    begins = np.flatnonzero(np.diff(taken.run, prepend=-1))
    first_spans = (taken.span_ends - np.diff(taken.span_ends, prepend=0))[begins]
    facts = (
        taken.run[begins],
        taken.level[begins],
        np.add.reduceat(taken.size_bytes, begins),
        np.add.reduceat(taken.raw_bytes, first_spans),
        np.add.reduceat(taken.records, first_spans),
        np.minimum.reduceat(taken.min_timestamp_ms, begins),
        np.maximum.reduceat(taken.max_timestamp_ms, begins),
        np.minimum.reduceat(taken.archived_at_ms, begins),
    )
    return [TopicRun(*values) for values in zip(*(column.tolist() for column in facts), strict=True)]


def segments_of_runs(segments: SegmentList, first: int, last: int) -> Sequence[TopicSegment]:
    """The segments of the runs `first` to `last`, in the order of the log."""
    begin, end = np.searchsorted(segments.columns.run, [first, last + 1]).tolist()
    return [segments.columns.segment(at) for at in range(begin, end)]


def input_bytes(raw_bytes: int, records: int) -> int:
    """What a run takes in memory while it is merged: a row group of it, or all of it if it is smaller."""
    return min(raw_bytes + RECORD_BYTES * records, ROW_GROUP_RAW_BYTES)


def by_run(segments: Iterable[TopicSegment]) -> Sequence[Sequence[TopicSegment]]:
    """`segments`, in the order of the log, run by run."""
    return [list(run) for _, run in groupby(segments, attrgetter("run"))]


def are_neighbours(segments: SegmentList, run: int, later: int) -> bool:
    """Whether no run lies between these two."""
    if later <= run + 1:
        return True
    begin, end = np.searchsorted(segments.columns.run, [run + 1, later]).tolist()
    return bool(begin == end)


def first_dirty_run(topic: TopicState) -> int:
    """The number of the first run with a record at or beyond its partition's clean end: those before it are cleaned.
    The number of the next run if there is none."""
    clean_ends = {number: state.clean_end for number, state in topic.all_partitions.items() if state.clean_end}
    if not clean_ends:
        return 0
    columns = topic.segments.columns
    ends = np.zeros(1 + max(int(columns.partition.max(initial=0)), *clean_ends), np.int64)
    ends[list(clean_ends)] = list(clean_ends.values())
    dirty = columns.segment_of_span[columns.last_offset >= ends[columns.partition]]
    return int(columns.run[dirty].min(initial=topic.next_run))


def final_ratio(segments: SegmentList) -> float:
    """Stored bytes for each raw byte in the newest final segment, which is compressed better than others; 0:
    unknown."""
    final = np.flatnonzero(segments.columns.level == FINAL_LEVEL)
    newest = segments.columns.segment(int(final[-1])) if len(final) else None
    return newest.size_bytes / newest.raw_bytes if newest and newest.raw_bytes else 0.0


def size_of(segments: SegmentList) -> int:
    """The stored bytes of all segments."""
    return int(segments.columns.size_bytes.sum())
