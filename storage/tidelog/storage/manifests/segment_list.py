"""The segments of a topic in a shard: a stored list that never changes, and the few differences since it was stored.

A topic may have a hundred thousand segments, and a version of the manifest changes a few of them. So the list is kept
in columns, as it was read, and `SegmentList` values share them. A segment becomes an object when it is asked for.

    segments = SegmentList(columns).changed(removed=[key], added=[segment])
    span = segments.find(partition=3, offset=1_000)       # by binary search, without a walk over the list

All methods are pure; columns are never changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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


@dataclass(frozen=True)
class SegmentList:
    """`stored` without the segments at the places `removed`, and with `added`."""

    stored: SegmentColumns = NO_COLUMNS
    removed: frozenset[int] = frozenset()
    added: SegmentColumns = NO_COLUMNS

    def __len__(self) -> int:
        return len(self.stored) - len(self.removed) + len(self.added)

    def __contains__(self, key: object) -> bool:
        """Whether a segment with this key is listed."""
        return isinstance(key, str) and (self._stored_at(key) is not None or key in self.added.position)

    def __iter__(self) -> Iterator[TopicSegment]:
        """All segments in the order of the log. It makes an object of each: for planning, use `columns`."""
        return iter(self.columns)

    @cached_property
    def columns(self) -> SegmentColumns:
        """All segments as columns; `stored` itself if nothing differs."""
        return joined(self.stored, self.removed, self.added)

    def named(self, key: str) -> TopicSegment | None:
        """The segment with this key."""
        if (at := self._stored_at(key)) is not None:
            return self.stored.segment(at)
        at = self.added.position.get(key)
        return None if at is None else self.added.segment(at)

    def find(self, partition: int, offset: int, since_ms: int | None = None) -> FoundSpan | None:
        """The span of `partition` that holds `offset`, or else the next one; None if there is none. `since_ms`: only
        in segments that have a record at this time or later, which may belong to another partition."""
        candidates = (
            _find(self.stored, self.removed, partition, offset, since_ms),
            _find(self.added, frozenset(), partition, offset, since_ms),
        )
        return min((found for found in candidates if found), key=lambda found: found.span.base_offset, default=None)

    def spans(self, partition: int, offset: int = 0) -> Iterator[FoundSpan]:
        """The spans of `partition` from the one that holds `offset` on, by offset."""
        found = self.find(partition, offset)
        while found is not None:
            yield found
            found = self.find(partition, found.span.next_offset)

    def time_bounds(self, partition: int, offset: int) -> tuple[int, int] | None:
        """Two times between which the largest timestamp of the records of `partition` from `offset` on lies, bounds
        included; None if there are no such records. Each segment bounds the times of its records."""
        columns = self.columns
        spans = columns.spans_of(partition)
        spans = spans[bisect_left(spans, offset, key=columns.last_offset.__getitem__) :]
        if not len(spans):
            return None
        segments = columns.segment_of_span[spans]
        return int(columns.min_timestamp_ms[segments].max()), int(columns.max_timestamp_ms[segments].max())

    def changed(self, removed: Iterable[str], added: Sequence[TopicSegment]) -> SegmentList:
        """Without the segments with the keys `removed`, and with `added`. Raises `DoesNotApply`."""
        stored, left = set(self.removed), set[int]()
        for key in removed:
            for columns, places in ((self.added, left), (self.stored, stored)):
                if (at := columns.position.get(key)) is not None and at not in places:
                    places.add(at)
                    break
            else:
                raise DoesNotApply(f"{key} is not listed")
        kept = SegmentList(self.stored, frozenset(stored), joined(self.added, frozenset(left), NO_COLUMNS))
        for key, times in Counter(segment.key for segment in added).items():
            if times > 1 or key in kept:
                raise DoesNotApply(f"{key} is listed already")
        return replace(kept, added=joined(kept.added, frozenset(), columns_of(added)))

    def _stored_at(self, key: str) -> int | None:
        """The place of a stored segment that is not removed."""
        at = self.stored.position.get(key)
        return None if at in self.removed else at


def _find(
    columns: SegmentColumns, removed: frozenset[int], partition: int, offset: int, since_ms: int | None
) -> FoundSpan | None:
    """By bisection among the spans of `partition`."""
    spans = columns.spans_of(partition)
    spans = spans[bisect_left(spans, offset, key=columns.last_offset.__getitem__) :]
    if since_ms is not None:
        spans = spans[columns.max_timestamp_ms[columns.segment_of_span[spans]] >= since_ms]
    for at in map(int, spans):
        index = int(columns.segment_of_span[at])
        if index not in removed:
            segment = columns.segment(index)
            return FoundSpan(segment, segment.spans[at - int(columns.span_starts[index])], int(columns.first_row[at]))
    return None
