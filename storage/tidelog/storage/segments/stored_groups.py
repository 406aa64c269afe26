"""Row groups of a segment as they are stored, in memory, and the records that a reader wants of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.group_columns import GroupColumns
from tidelog.storage.parquet.page_map import GroupPages, walked
from tidelog.storage.parquet.parquet_format import Footer, parsing
from tidelog.storage.parquet.row_decoding import check_groups
from tidelog.storage.parquet.row_group_extract import ExtractedGroups
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.segments.span_groups import GroupBounds, SpanGroup
from tidelog.storage.segments.topic_segment import partition_bounds


@dataclass(frozen=True)
class Wanted:
    """At least one record of `partition` from `offset` on; about `bytes_max` of raw records, or at least `records_max`
    of them."""

    partition: int
    offset: int
    bytes_max: int
    records_max: int

    def is_part_of(self, each: SpanGroup) -> bool:
        """Whether it pays to decode a row group in part."""
        rows = min(each.rows, self.records_max)
        return 2 * self.bytes_max <= each.group.raw_bytes or 2 * rows <= each.group.rows


@dataclass(frozen=True)
class StoredGroups:
    """The segment `key`, its footer, and `data`: the bytes of consecutive row groups, from `base` of the object on. A
    single row group may be there only to the page that a reader wants (`bytes_to_read`); `pages`: its pages, if they
    are known."""

    key: str
    footer: Footer
    data: memoryview
    base: int
    pages: GroupPages | None = None

    def of(self, groups: Sequence[SpanGroup]) -> memoryview:
        """The bytes of some of the row groups, which are consecutive."""
        return self.data[groups[0].group.start - self.base : groups[-1].group.end - self.base]

    def check(self, groups: Sequence[SpanGroup]) -> None:
        """Compare every byte of consecutive row groups with its checksum. Raises `Corrupt`."""
        check_groups(self.key, [each.group for each in groups], self.of(groups))

    def columns(self, each: SpanGroup) -> GroupColumns:
        """To decode a row group in part. Its bytes are checked: page by page as they are decoded, or all at once if the
        segment has no map of its pages. Raises `Corrupt`."""
        data, pages = self.of((each,)), self.pages or self.footer.pages_of(self.key, each.group)
        if pages is None:
            self.check((each,))
            with parsing(self.key):
                pages = walked(self.footer.metadata, each.group.index, data, each.group.start)
        return GroupColumns(self.key, STORED_SCHEMA, self.footer, each.group, data, pages)


@dataclass(frozen=True)
class WholeGroups:
    """Row groups, at least one, that hold records of one span only, as they are `stored`. A reader wants the records
    from `offset` on; the first row group may hold some before it."""

    stored: StoredGroups
    groups: Sequence[SpanGroup]
    offset: int
    raw_bytes: int

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.groups)

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.groups[-1].last_offset + 1

    @property
    def records(self) -> int:
        """The wanted records; a few more if compaction removed some of the first row group."""
        first, *others = self.groups
        wanted = min(first.rows, first.last_offset - max(self.offset, first.base_offset) + 1)
        return wanted + sum(each.rows for each in others)

    def is_within(self, bounds: GroupBounds) -> bool:
        return bounds.hold(len(self.groups), self.raw_bytes, self.rows)

    def check(self, partition: int) -> None:
        """Compare every byte with its checksum, and the partition with the statistics. Raises `Corrupt`."""
        if any(partition_bounds(each.group) != (partition, partition) for each in self.groups):
            raise foreign_rows(self.stored.key, partition)
        self.stored.check(self.groups)

    def extracted(self) -> ExtractedGroups:
        """The row groups, for a Parquet file of their own."""
        return ExtractedGroups(self.stored.footer, [each.group for each in self.groups], self.stored.of(self.groups))


def foreign_rows(key: str, partition: int) -> Corrupt:
    """The error that `key` holds rows of another partition than its manifest says."""
    return Corrupt(key, f"has records of another partition where its manifest has {partition}")
