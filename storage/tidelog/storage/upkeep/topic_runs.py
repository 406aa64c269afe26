"""The runs of a topic in a shard, as merging and compaction plan with them.

A topic may have a hundred thousand segments, and plans are made after every version. So a plan looks only at the runs
that may have to change, and asks the columns of the stored list for the rest (`SegmentList`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    stored = segments.stored
    begin = int(np.searchsorted(stored.run, first))
    places = (begin + np.flatnonzero(stored.level[begin:] < below_level)).tolist()
    found = [_stored_run(segments, at) for at in places if at not in segments.removed]
    found += [_run(each) for each in segments.added if each.level < below_level and each.run >= first]
    found.sort(key=attrgetter("number"))
    return [_joined(list(parts)) for _, parts in groupby(found, attrgetter("number"))]


def segments_of_runs(segments: SegmentList, first: int, last: int) -> Sequence[TopicSegment]:
    """The segments of the runs `first` to `last`, in the order of the log."""
    begin, end = np.searchsorted(segments.stored.run, [first, last + 1]).tolist()
    kept = [segments.stored.segment(at) for at in range(begin, end) if at not in segments.removed]
    return sorted((*kept, *_added(segments, first, last)), key=attrgetter("place"))


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
    begin, end = np.searchsorted(segments.stored.run, [run + 1, later]).tolist()
    stored = any(at not in segments.removed for at in range(begin, end))
    return not stored and not _added(segments, run + 1, later - 1)


def first_dirty_run(topic: TopicState) -> int:
    """The number of the first run with a record at or beyond its partition's clean end: those before it are cleaned.
    The number of the next run if there is none."""
    clean_ends = {number: state.clean_end for number, state in topic.all_partitions.items() if state.clean_end}
    if not clean_ends:
        return 0
    segments, stored = topic.segments, topic.segments.stored
    ends = np.zeros(1 + max(int(stored.partition.max(initial=0)), *clean_ends), np.int64)
    ends[list(clean_ends)] = list(clean_ends.values())
    dirty = np.unique(stored.segment_of_span[stored.last_offset >= ends[stored.partition]]).tolist()
    first = next((int(stored.run[at]) for at in dirty if at not in segments.removed), topic.next_run)
    added = (each.run for each in segments.added if _is_dirty(each, clean_ends))
    return min(first, *added, topic.next_run)


def final_ratio(segments: SegmentList) -> float:
    """Stored bytes for each raw byte in the newest final segment, which is compressed better than others; 0:
    unknown."""
    places = np.flatnonzero(segments.stored.level == FINAL_LEVEL)[::-1]
    stored = next((_stored_run(segments, int(at)) for at in places if at not in segments.removed), None)
    added = next((_run(each) for each in reversed(segments.added) if each.level == FINAL_LEVEL), None)
    final = max(filter(None, (stored, added)), key=attrgetter("number"), default=None)
    return final.size_bytes / final.raw_bytes if final and final.raw_bytes else 0.0


def size_of(segments: SegmentList) -> int:
    """The stored bytes of all segments."""
    stored = segments.stored.size_bytes
    left = int(stored[list(segments.removed)].sum()) if segments.removed else 0
    return int(stored.sum()) - left + sum(each.size_bytes for each in segments.added)


def _added(segments: SegmentList, first: int, last: int) -> Sequence[TopicSegment]:
    """Those of `segments.added` in the runs `first` to `last`."""
    number = attrgetter("run")
    return segments.added[
        bisect_left(segments.added, first, key=number) : bisect_right(segments.added, last, key=number)
    ]


def _is_dirty(segment: TopicSegment, clean_ends: Mapping[int, int]) -> bool:
    return any(span.last_offset >= clean_ends.get(span.partition, 0) for span in segment.spans)


def _stored_run(segments: SegmentList, at: int) -> TopicRun:
    stored = segments.stored
    spans = slice(stored.span_start(at), int(stored.span_ends[at]))
    return TopicRun(
        int(stored.run[at]),
        int(stored.level[at]),
        int(stored.size_bytes[at]),
        int(stored.raw_bytes[spans].sum()),
        int(stored.records[spans].sum()),
        int(stored.min_timestamp_ms[at]),
        int(stored.max_timestamp_ms[at]),
        int(stored.archived_at_ms[at]),
    )


def _run(segment: TopicSegment) -> TopicRun:
    return TopicRun(
        segment.run,
        segment.level,
        segment.size_bytes,
        segment.raw_bytes,
        segment.records,
        segment.min_timestamp_ms,
        segment.max_timestamp_ms,
        segment.archived_at_ms,
    )


def _joined(parts: Sequence[TopicRun]) -> TopicRun:
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        size_bytes=sum(part.size_bytes for part in parts),
        raw_bytes=sum(part.raw_bytes for part in parts),
        records=sum(part.records for part in parts),
        min_timestamp_ms=min(part.min_timestamp_ms for part in parts),
        max_timestamp_ms=max(part.max_timestamp_ms for part in parts),
        archived_at_ms=min(part.archived_at_ms for part in parts),
    )
