"""The segments of a topic in a shard: a stored list that never changes, and the few differences since it was stored.

A topic may have a hundred thousand segments, and a version of the manifest changes a few of them. So the list is kept
in columns, as it was read, and `SegmentList` values share them. A segment becomes an object when it is asked for.

    segments = SegmentList(columns).changed(removed=[key], added=[segment])
    span = segments.find(partition=3, offset=1_000)       # by binary search, without a walk over the list

All methods are pure; columns are never changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment

Ints = npt.NDArray[np.int64]

RECENT_SEGMENTS = 16
"""Segments of a stored list that are kept as objects. One of 1,000 spans takes a millisecond to make, and readers of
its partitions ask for it again and again."""


class DoesNotApply(Exception):
    """A change removes a segment that is not listed, or adds one that is."""


@dataclass(frozen=True, slots=True)
class FoundSpan:
    """A span of a partition, and the segment that holds it. `first_row`: the row of its first record there."""

    segment: TopicSegment
    span: SegmentSpan
    first_row: int


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
        """Segment `index` as a value."""
        first, end = self.span_start(index), int(self.span_ends[index])
        columns = (self.partition, self.base_offset, self.last_offset, self.records, self.raw_bytes)
        spans = zip(*(column[first:end].tolist() for column in columns), strict=True)
        return TopicSegment(
            self.keys[index],
            int(self.run[index]),
            int(self.level[index]),
            int(self.size_bytes[index]),
            self.sha256[index],
            int(self.min_timestamp_ms[index]),
            int(self.max_timestamp_ms[index]),
            int(self.archived_at_ms[index]),
            tuple(SegmentSpan(*span) for span in spans),
        )

    @cached_property
    def recent_segment(self) -> Callable[[int], TopicSegment]:
        """`segment`, which keeps the last `RECENT_SEGMENTS` values."""
        return lru_cache(RECENT_SEGMENTS)(self.segment)

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

_place, _partition = attrgetter("place"), attrgetter("partition")


@dataclass(frozen=True)
class SegmentList:
    """`stored` without the segments at the places `removed`, and with `added`, in the order of their place."""

    stored: SegmentColumns = NO_COLUMNS
    removed: frozenset[int] = frozenset()
    added: tuple[TopicSegment, ...] = ()

    def __len__(self) -> int:
        return len(self.stored) - len(self.removed) + len(self.added)

    def __contains__(self, key: object) -> bool:
        """Whether a segment with this key is listed."""
        at = self.stored.position.get(key) if isinstance(key, str) else None
        return (at is not None and at not in self.removed) or any(segment.key == key for segment in self.added)

    def __iter__(self) -> Iterator[TopicSegment]:
        """All segments in the order of the log. It makes an object of each: for planning, use `below`."""
        kept = (self.stored.segment(at) for at in range(len(self.stored)) if at not in self.removed)
        return iter(sorted((*kept, *self.added), key=_place))

    @property
    def differences(self) -> int:
        """How many segments differ from the stored list."""
        return len(self.removed) + len(self.added)

    def below(self, level: int) -> Sequence[TopicSegment]:
        """The segments of a level below `level`, in the order of the log."""
        stored = (int(at) for at in np.flatnonzero(self.stored.level < level))
        kept = [self.stored.segment(at) for at in stored if at not in self.removed]
        return sorted((*kept, *(segment for segment in self.added if segment.level < level)), key=_place)

    def expired(self, before_ms: int) -> Sequence[TopicSegment]:
        """The segments whose newest record is older than `before_ms`."""
        stored = (int(at) for at in np.flatnonzero(self.stored.max_timestamp_ms < before_ms))
        kept = [self.stored.segment(at) for at in stored if at not in self.removed]
        return sorted((*kept, *(each for each in self.added if each.max_timestamp_ms < before_ms)), key=_place)

    def named(self, key: str) -> TopicSegment | None:
        """The segment with this key."""
        at = self.stored.position.get(key)
        if at is not None and at not in self.removed:
            return self.stored.segment(at)
        return next((segment for segment in self.added if segment.key == key), None)

    def find(self, partition: int, offset: int, since_ms: int | None = None) -> FoundSpan | None:
        """The span of `partition` that holds `offset`, or else the next one; None if there is none. `since_ms`: only
        in segments that have a record at this time or later, which may belong to another partition."""
        candidates = (self._find_stored(partition, offset, since_ms), self._find_added(partition, offset, since_ms))
        return min((found for found in candidates if found), key=lambda found: found.span.base_offset, default=None)

    def spans(self, partition: int, offset: int = 0) -> Iterator[FoundSpan]:
        """The spans of `partition` from the one that holds `offset` on, by offset."""
        found = self.find(partition, offset)
        while found is not None:
            yield found
            found = self.find(partition, found.span.next_offset)

    def changed(self, removed: Iterable[str], added: Iterable[TopicSegment]) -> SegmentList:
        """Without the segments with the keys `removed`, and with `added`. Raises `DoesNotApply`."""
        places, left = set(self.removed), {segment.key: segment for segment in self.added}
        for key in removed:
            if left.pop(key, None) is None:
                at = self.stored.position.get(key)
                if at is None or at in places:
                    raise DoesNotApply(f"{key} is not listed")
                places.add(at)
        for segment in added:
            if segment.key in left or self.stored.position.get(segment.key, -1) not in {-1, *places}:
                raise DoesNotApply(f"{segment.key} is listed already")
            left[segment.key] = segment
        return SegmentList(self.stored, frozenset(places), tuple(sorted(left.values(), key=_place)))

    @cached_property
    def columns(self) -> SegmentColumns:
        """All segments as columns; `stored` itself if nothing differs."""
        if not self.differences:
            return self.stored
        return joined(self.stored, self.removed, columns_of(self.added))

    def _find_stored(self, partition: int, offset: int, since_ms: int | None) -> FoundSpan | None:
        spans = self.stored.spans_of(partition)
        spans = spans[int(np.searchsorted(self.stored.last_offset[spans], offset)) :]
        if since_ms is not None:
            spans = spans[self.stored.max_timestamp_ms[self.stored.segment_of_span[spans]] >= since_ms]
        for at in map(int, spans):
            index = int(self.stored.segment_of_span[at])
            if index not in self.removed:
                segment = self.stored.recent_segment(index)
                span = segment.spans[at - self.stored.span_start(index)]
                return FoundSpan(segment, span, int(self.stored.first_row[at]))
        return None

    def _find_added(self, partition: int, offset: int, since_ms: int | None) -> FoundSpan | None:
        """By bisection: for every partition, later segments have later offsets. Segments without the partition are
        passed over."""
        late = self.added
        if since_ms is not None:
            late = tuple(segment for segment in late if segment.max_timestamp_ms >= since_ms)
        first, end = 0, len(late)
        best: tuple[TopicSegment, int] | None = None
        while first < end:
            middle = (first + end) // 2
            at, place = _next_with(partition, late, middle, end)
            if place is None:
                end = middle
            elif late[at].spans[place].last_offset < offset:
                first = at + 1
            else:
                best, end = (late[at], place), middle
        return _found(*best) if best else None


def _next_with(partition: int, segments: Sequence[TopicSegment], first: int, end: int) -> tuple[int, int | None]:
    """The first segment from `first` on, before `end`, with records of `partition`, and the place of its span."""
    for at in range(first, end):
        if (place := _place_of(segments[at], partition)) is not None:
            return at, place
    return end, None


def _place_of(segment: TopicSegment, partition: int) -> int | None:
    """The place of a partition's span among the spans of `segment`."""
    spans = segment.spans
    if not spans[0].partition <= partition <= spans[-1].partition:
        return None
    place = bisect_left(spans, partition, key=_partition)
    return place if spans[place].partition == partition else None


def _found(segment: TopicSegment, place: int) -> FoundSpan:
    return FoundSpan(segment, segment.spans[place], sum(span.records for span in segment.spans[:place]))
