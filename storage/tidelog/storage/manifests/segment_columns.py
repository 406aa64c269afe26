"""Segments of a topic in columns, as a stored list has them: a hundred thousand take some hundred milliseconds to read
and never become objects, unless they are asked for. All methods are pure; columns are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SegmentColumns:
    """Segments in the order of `TopicSegment.place`, as columns. The spans of segment *n* are those at ``[span_ends[n -
    1], span_ends[n])`` of the span columns."""

    keys: Sequence[str]
    sha256: Sequence[str]
    run: Ints
    level: Ints
    size_bytes: Ints
    min_timestamp_ms: Ints
    max_timestamp_ms: Ints
    archived_at_ms: Ints
    span_ends: Ints
    partition: Ints
    base_offset: Ints
    last_offset: Ints
    records: Ints
    raw_bytes: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def segment(self, index: int) -> TopicSegment:
        """Segment `index` as a value, whose spans are made when they are asked for."""
        return TopicSegment(
            self.keys[index],
            int(self.run[index]),
            int(self.level[index]),
            int(self.size_bytes[index]),
            self.sha256[index],
            int(self.min_timestamp_ms[index]),
            int(self.max_timestamp_ms[index]),
            int(self.archived_at_ms[index]),
            ColumnSpans(self, self.span_start(index), int(self.span_ends[index])),
        )

    def span_start(self, index: int) -> int:
        return int(self.span_ends[index - 1]) if index else 0

    @cached_property
    def position(self) -> dict[str, int]:
        """The place of each segment, by its key."""
        return {key: at for at, key in enumerate(self.keys)}

    @cached_property
    def segment_of_span(self) -> Ints:
        """The segment of each span."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.span_ends, prepend=0))

    @cached_property
    def by_partition(self) -> Ints:
        """The places of all spans, sorted by (partition, base offset)."""
        return np.lexsort((self.base_offset, self.partition))

    @cached_property
    def first_row(self) -> Ints:
        """The row in its segment where each span begins."""
        before = np.cumsum(self.records) - self.records
        starts = np.concatenate(([0], self.span_ends[:-1])).astype(np.int64)
        return before - np.repeat(before[starts] if len(starts) else before, np.diff(self.span_ends, prepend=0))

    @cached_property
    def span_bytes(self) -> Ints:
        """The stored bytes of each span: the share of its segment's that its records have of the raw bytes, or of the
        records if these have no bytes."""
        starts, of_span = self.span_ends - np.diff(self.span_ends, prepend=0), self.segment_of_span
        has_bytes = (np.add.reduceat(self.raw_bytes, starts) > 0)[of_span]
        weight = np.where(has_bytes, self.raw_bytes, self.records)
        whole = np.maximum(np.add.reduceat(weight, starts), 1)
        return (self.size_bytes[of_span] * (weight / whole[of_span])).astype(np.int64)

    @cached_property
    def sorted_partitions(self) -> Ints:
        """The partition of each span, in the order of `by_partition`."""
        return self.partition[self.by_partition]

    def spans_of(self, partition: int) -> Ints:
        """The places of the spans of `partition`, by offset."""
        first, end = np.searchsorted(self.sorted_partitions, [partition, partition + 1])
        return self.by_partition[first:end]

    def taken(self, places: Ints) -> SegmentColumns:
        """The segments at `places`, in that order."""
        lengths = np.diff(self.span_ends, prepend=0)
        starts, taken = self.span_ends - lengths, lengths[places]
        ends = np.cumsum(taken)
        spans = np.repeat(starts[places] - (ends - taken), taken) + np.arange(int(taken.sum()))
        numbers = {name: getattr(self, name)[places] for name in OF_SEGMENTS}
        numbers |= {name: getattr(self, name)[spans] for name in OF_SPANS}
        listed = places.tolist()
        keys, sha256 = ([column[at] for at in listed] for column in (self.keys, self.sha256))
        return SegmentColumns(keys, sha256, **{**numbers, "span_ends": ends})


@dataclass(frozen=True, eq=False, slots=True)
class ColumnSpans(Sequence[SegmentSpan]):
    """The spans at ``[first, end)`` of `columns`, which become objects when they are asked for. It equals the tuple of
    them. A thousand spans take a millisecond to make, and a reader needs one."""

    columns: SegmentColumns
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    @overload
    def __getitem__(self, index: int) -> SegmentSpan: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[SegmentSpan]: ...

    def __getitem__(self, index: int | slice) -> SegmentSpan | Sequence[SegmentSpan]:
        at = range(self.first, self.end)[index]
        return tuple(map(self._span, at)) if isinstance(at, range) else self._span(at)

    def __iter__(self) -> Iterator[SegmentSpan]:
        columns = (getattr(self.columns, name)[self.first : self.end].tolist() for name in OF_SPANS)
        return map(SegmentSpan, *columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (ColumnSpans, tuple)) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def _span(self, at: int) -> SegmentSpan:
        return SegmentSpan(*(int(getattr(self.columns, name)[at]) for name in OF_SPANS))


OF_SEGMENTS = ("run", "level", "size_bytes", "min_timestamp_ms", "max_timestamp_ms", "archived_at_ms", "span_ends")
OF_SPANS = ("partition", "base_offset", "last_offset", "records", "raw_bytes")


def joined(one: SegmentColumns, removed: frozenset[int], two: SegmentColumns) -> SegmentColumns:
    """The segments of `one` that are not at the places `removed`, and those of `two`, in the order of their place."""
    numbers = {name: np.concatenate((getattr(one, name), getattr(two, name))) for name in (*OF_SEGMENTS, *OF_SPANS)}
    numbers["span_ends"] = np.concatenate((one.span_ends, two.span_ends + len(one.partition)))
    both = SegmentColumns([*one.keys, *two.keys], [*one.sha256, *two.sha256], **numbers)
    starts = both.span_ends - np.diff(both.span_ends, prepend=0)
    order = np.lexsort((both.base_offset[starts], both.partition[starts], both.run))
    stays = np.ones(len(both), np.bool_)
    stays[sorted(removed)] = False
    return both.taken(order[stays[order]])


def columns_of(segments: Sequence[TopicSegment]) -> SegmentColumns:
    """`segments`, in the order of their place, as columns."""
    spans = [span for segment in segments for span in segment.spans]

    def ints(values: Iterable[int]) -> Ints:
        return np.fromiter(values, np.int64)

    return SegmentColumns(
        keys=[segment.key for segment in segments],
        sha256=[segment.sha256 for segment in segments],
        run=ints(segment.run for segment in segments),
        level=ints(segment.level for segment in segments),
        size_bytes=ints(segment.size_bytes for segment in segments),
        min_timestamp_ms=ints(segment.min_timestamp_ms for segment in segments),
        max_timestamp_ms=ints(segment.max_timestamp_ms for segment in segments),
        archived_at_ms=ints(segment.archived_at_ms for segment in segments),
        span_ends=np.cumsum(ints(len(segment.spans) for segment in segments)),
        partition=ints(span.partition for span in spans),
        base_offset=ints(span.base_offset for span in spans),
        last_offset=ints(span.last_offset for span in spans),
        records=ints(span.records for span in spans),
        raw_bytes=ints(span.raw_bytes for span in spans),
    )


NO_COLUMNS = columns_of(())
