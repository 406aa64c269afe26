"""The segments of a topic in a shard: a stored list that never changes, and the few differences since it was stored.

A topic may have a hundred thousand segments, and a version of the manifest changes a few of them. So the list is kept
in columns, as it was read, and `SegmentList` values share them. A segment becomes an object when it is asked for.

    segments = SegmentList(columns).changed(removed=[key], added=[segment])
    span = segments.find(partition=3, offset=1_000)       # by binary search, without a walk over the list

All methods are pure; columns are never changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from tidelog.storage.manifests.segment_columns import NO_COLUMNS, SegmentColumns, columns_of, joined
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment


class DoesNotApply(Exception):
    """A change removes a segment that is not listed, or adds one that is."""


@dataclass(frozen=True, slots=True)
class FoundSpan:
    """A span of a partition, and the segment that holds it. `first_row`: the row of its first record there."""

    segment: TopicSegment
    span: SegmentSpan
    first_row: int


_place, _partition, _records = map(attrgetter, ("place", "partition", "records"))


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
        return (at is not None and at not in self.removed) or key in self._added_by_key

    def __iter__(self) -> Iterator[TopicSegment]:
        """All segments in the order of the log. It makes an object of each: for planning, use `columns`."""
        kept = (self.stored.segment(at) for at in range(len(self.stored)) if at not in self.removed)
        return iter(sorted((*kept, *self.added), key=_place))

    @property
    def differences(self) -> int:
        """How many segments differ from the stored list."""
        return len(self.removed) + len(self.added)

    def named(self, key: str) -> TopicSegment | None:
        """The segment with this key."""
        at = self.stored.position.get(key)
        if at is not None and at not in self.removed:
            return self.stored.segment(at)
        return self._added_by_key.get(key)

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

    @cached_property
    def _added_by_key(self) -> dict[str, TopicSegment]:
        return {segment.key: segment for segment in self.added}

    def changed(self, removed: Iterable[str], added: Iterable[TopicSegment]) -> SegmentList:
        """Without the segments with the keys `removed`, and with `added`. Raises `DoesNotApply`."""
        places, left = set(self.removed), dict(self._added_by_key)
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
        spans = spans[bisect_left(spans, offset, key=self.stored.last_offset.__getitem__) :]
        if since_ms is not None:
            spans = spans[self.stored.max_timestamp_ms[self.stored.segment_of_span[spans]] >= since_ms]
        for at in map(int, spans):
            index = int(self.stored.segment_of_span[at])
            if index not in self.removed:
                segment = self.stored.segment(index)
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
    return FoundSpan(segment, segment.spans[place], sum(map(_records, segment.spans[:place])))
