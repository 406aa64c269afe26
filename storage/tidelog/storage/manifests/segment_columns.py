"""Segments of a topic in columns, as a stored list has them: a hundred thousand take some hundred milliseconds to read
and never become objects, unless they are asked for. All methods are pure; columns are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import msgspec
import numpy as np

from tidelog.storage.manifests.json_envelope import Ints
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment

OF_SEGMENTS = ("run", "level", "size_bytes", "min_timestamp_ms", "max_timestamp_ms", "archived_at_ms")
OF_SPANS = SegmentSpan.__struct_fields__


class SegmentColumns(msgspec.Struct, frozen=True, eq=False, array_like=True, dict=True):
    """Segments in the order of `TopicSegment.place`, as columns, in memory and as they are stored. The spans of segment
    *n* are those at ``[span_ends[n - 1], span_ends[n])`` of the span columns."""

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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SegmentColumns) or (self.keys, self.sha256) != (other.keys, other.sha256):
            return False
        names = ("span_ends", *OF_SEGMENTS, *OF_SPANS)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def __hash__(self) -> int:
        return hash(tuple(self.keys))

    @overload
    def __getitem__(self, index: int) -> TopicSegment: ...

    @overload
    def __getitem__(self, index: slice) -> SegmentColumns: ...

    def __getitem__(self, index: int | slice) -> TopicSegment | SegmentColumns:
        at = range(len(self))[index]
        return self.taken(np.array(at, np.int64)) if isinstance(at, range) else self.segment(at)

    def __iter__(self) -> Iterator[TopicSegment]:
        return map(self.segment, range(len(self)))

    def segment(self, index: int) -> TopicSegment:
        """Segment `index` as a value, whose spans are made when they are asked for."""
        spans = ColumnSpans(self, int(self.span_starts[index]), int(self.span_ends[index]))
        numbers = {name: int(getattr(self, name)[index]) for name in OF_SEGMENTS}
        return TopicSegment(key=self.keys[index], sha256=self.sha256[index], spans=spans, **numbers)

    def fault(self) -> str | None:
        """Why these cannot be columns of segments; None if they can."""
        if any(len(getattr(self, name)) != len(self) for name in ("sha256", "span_ends", *OF_SEGMENTS)):
            return "has columns of different lengths"
        spans = len(self.partition)
        if any(len(getattr(self, name)) != spans for name in OF_SPANS):
            return "has columns of spans of different lengths"
        if int(self.lengths.sum()) != spans or bool(np.any(self.lengths < 1)):
            return "has segments without spans, or spans without a segment"
        return None

    @cached_property
    def lengths(self) -> Ints:
        """How many spans each segment has."""
        return self.span_ends - self.span_starts

    @cached_property
    def span_starts(self) -> Ints:
        """The place of the first span of each segment."""
        return np.concatenate((np.zeros(1, np.int64), self.span_ends))[:-1]

    @cached_property
    def position(self) -> dict[str, int]:
        """The place of each segment, by its key."""
        return {key: at for at, key in enumerate(self.keys)}

    @cached_property
    def segment_of_span(self) -> Ints:
        """The segment of each span."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def by_partition(self) -> Ints:
        """The places of all spans, sorted by (partition, base offset)."""
        return np.lexsort((self.base_offset, self.partition))

    @cached_property
    def first_row(self) -> Ints:
        """The row in its segment where each span begins."""
        before = np.cumsum(self.records) - self.records
        return before - np.repeat(before[self.span_starts], self.lengths)

    @cached_property
    def span_bytes(self) -> Ints:
        """The stored bytes of each span: the share of its segment's that its records have of the raw bytes, or of the
        records if these have no bytes."""
        starts, of_span = self.span_starts, self.segment_of_span
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
        taken = self.lengths[places]
        ends = np.cumsum(taken)
        spans = np.repeat(self.span_starts[places] - (ends - taken), taken) + np.arange(int(taken.sum()))
        numbers = {name: getattr(self, name)[places] for name in OF_SEGMENTS}
        numbers |= {name: getattr(self, name)[spans] for name in OF_SPANS}
        listed = places.tolist()
        keys, sha256 = ([column[at] for at in listed] for column in (self.keys, self.sha256))
        return SegmentColumns(keys, sha256, span_ends=ends, **numbers)


class ColumnSpans(Sequence[SegmentSpan]):
    """The spans at ``[first, end)`` of `columns`, which become objects when they are asked for. It equals the tuple of
    them. A thousand spans take a millisecond to make, and a reader needs one."""

    __slots__ = ("columns", "end", "first")

    def __init__(self, columns: SegmentColumns, first: int, end: int) -> None:
        self.columns, self.first, self.end = columns, first, end

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

    def __reduce__(self) -> tuple[type[tuple[SegmentSpan, ...]], tuple[list[SegmentSpan]]]:
        """Pickled as the tuple of them, without the other columns: jobs send segments to other processes."""
        return tuple, (list(self),)

    def _span(self, at: int) -> SegmentSpan:
        return SegmentSpan(*(int(getattr(self.columns, name)[at]) for name in OF_SPANS))


def joined(one: SegmentColumns, removed: frozenset[int], two: SegmentColumns) -> SegmentColumns:
    """The segments of `one` that are not at the places `removed`, and those of `two`, in the order of their place;
    `one` itself if nothing differs."""
    if not removed and not len(two):
        return one
    numbers = {name: np.concatenate((getattr(one, name), getattr(two, name))) for name in (*OF_SEGMENTS, *OF_SPANS)}
    ends = np.concatenate((one.span_ends, two.span_ends + len(one.partition)))
    both = SegmentColumns([*one.keys, *two.keys], [*one.sha256, *two.sha256], span_ends=ends, **numbers)
    if not removed and len(two) == 1 and (not len(one) or one.run[-1] < two.run[0]):
        return both  # a pass adds one segment after all others
    starts = both.span_starts
    order = np.lexsort((both.base_offset[starts], both.partition[starts], both.run))
    stays = np.ones(len(both), np.bool_)
    stays[sorted(removed)] = False
    return both.taken(order[stays[order]])


def columns_of(segments: Sequence[TopicSegment]) -> SegmentColumns:
    """`segments`, in the order of their place, as columns."""
    spans = [span for segment in segments for span in segment.spans]

    def column(name: str, values: Sequence[object]) -> Ints:
        return np.fromiter((getattr(value, name) for value in values), np.int64, len(values))

    numbers = {name: column(name, segments) for name in OF_SEGMENTS}
    numbers |= {name: column(name, spans) for name in OF_SPANS}
    ends = np.cumsum([len(segment.spans) for segment in segments], dtype=np.int64)
    keys, sha256 = [segment.key for segment in segments], [segment.sha256 for segment in segments]
    return SegmentColumns(keys, sha256, span_ends=ends, **numbers)


NO_COLUMNS = columns_of(())
