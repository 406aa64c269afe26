"""Finds the row groups of a segment that hold the records of a span. All functions are pure.

A large partition has row groups of its own. Small partitions share row groups, so the first and the last row group of a
span may hold rows of its neighbours in the segment. The rows of a span follow from the manifest (`FoundSpan`), and the
rows of a row group from the footer. The footer's statistics of `offset` count only for a row group that belongs to one
partition; of a shared one they cover all its partitions.

Of a shared row group only limits are known: offsets ascend, so n rows after offset o an offset is at least o + n. The
limits are exact unless compaction has removed records of the span.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.parquet.parquet_format import Footer, RowGroup
from tidelog.storage.segments.topic_segment import max_timestamp_ms, offset_bounds


@dataclass(frozen=True, slots=True)
class SpanGroup:
    """Rows ``[first_row, end_row)`` of row group `group` belong to a span. Their offsets are from `base_offset` to
    `last_offset`; these are limits, not always offsets of records."""

    group: RowGroup
    first_row: int
    end_row: int
    base_offset: int
    last_offset: int

    @property
    def rows(self) -> int:
        return self.end_row - self.first_row

    @property
    def shared(self) -> bool:
        """Whether the row group holds rows of other spans, too."""
        return self.rows < self.group.rows

    @property
    def raw_bytes(self) -> int:
        """The uncompressed bytes of these rows, if all rows of the row group have the same size."""
        return self.group.raw_bytes * self.rows // self.group.rows


def span_groups(footer: Footer, found: FoundSpan) -> Iterator[SpanGroup]:
    """The row groups of a span in order."""
    start, span_end = 0, found.first_row + found.span.records
    for group in footer.row_groups:
        end = start + group.rows
        if start >= span_end:
            return
        if end > found.first_row:
            first_row, end_row = max(found.first_row, start), min(span_end, end)
            bounds = _bounds(found, group, first_row - found.first_row, end_row - found.first_row)
            yield SpanGroup(group, first_row - start, end_row - start, *bounds)
        start = end


def plan_groups(
    footer: Footer, found: FoundSpan, offset: int, bytes_max: int, records_max: int, first_group: int = 0
) -> tuple[SpanGroup, ...]:
    """The first row group, from number `first_group` on, that may hold `offset` or the record after it, and the
    following ones until they have `bytes_max` raw bytes or `records_max` records; none if `offset` is beyond the
    span."""
    taken: list[SpanGroup] = []
    raw_bytes = records = 0
    for each in span_groups(footer, found):
        if each.last_offset < offset or each.group.index < first_group:
            continue
        raw_bytes += each.raw_bytes
        if taken and (raw_bytes > bytes_max or records >= records_max):
            break
        taken.append(each)
        records += min(each.rows, each.last_offset - offset + 1)
    return tuple(taken)


@dataclass(frozen=True)
class GroupBounds:
    """Bounds of whole row groups: their raw bytes and records together, and the raw bytes of the first one, which
    cannot be cut, if that is more."""

    bytes_max: int
    records_max: int
    first_bytes_max: int = 0

    def hold(self, groups: int, raw_bytes: int, records: int) -> bool:
        """Whether so many row groups with so many bytes and records are within the bounds."""
        bytes_max = max(self.bytes_max, self.first_bytes_max) if groups == 1 else self.bytes_max
        return raw_bytes <= bytes_max and records <= self.records_max


def plan_whole_groups(footer: Footer, found: FoundSpan, offset: int, bounds: GroupBounds) -> tuple[SpanGroup, ...]:
    """The row group that holds `offset` or the record after it, and the following ones, as long as they belong to the
    span alone and all rows of all of them are within `bounds`. None if the segment has other columns than ours, which
    nobody asked for."""
    taken: list[SpanGroup] = []
    raw_bytes = records = 0
    for each in span_groups(footer, found) if footer.has_only_ours else ():
        if each.last_offset < offset:
            continue
        raw_bytes += decoded_bytes(each, found)
        records += each.rows
        if each.shared or not bounds.hold(len(taken) + 1, raw_bytes, records):
            break
        taken.append(each)
    return tuple(taken)


def decoded_bytes(each: SpanGroup, found: FoundSpan) -> int:
    """About the bytes of the keys and values of these rows. A row group with a dictionary takes fewer, so the span's
    mean counts, too."""
    return max(each.raw_bytes, found.span.raw_bytes * each.rows // found.span.records)


def groups_since(footer: Footer, found: FoundSpan, timestamp_ms: int) -> Iterator[SpanGroup]:
    """The row groups of a span that have a record at `timestamp_ms` or later; in a shared one it may be a
    neighbour's."""
    return (each for each in span_groups(footer, found) if max_timestamp_ms((each.group,)) >= timestamp_ms)


def _bounds(found: FoundSpan, group: RowGroup, first: int, end: int) -> tuple[int, int]:
    """Limits for the offsets of rows ``[first, end)`` of the span, which lie in `group`."""
    span = found.span
    if end - first == group.rows:
        return offset_bounds(group)
    return span.base_offset + first, span.last_offset - (span.records - end)
