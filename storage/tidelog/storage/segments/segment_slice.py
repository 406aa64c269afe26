"""Decodes the records of a span from row groups, without those of its neighbours and without more than is wanted.

A row group holds some twenty thousand records, and a lookup wants a few of them; a small partition has only a few of
them. Offsets, timestamps, keys and headers are small and decoded whole, unless there are none (`holds_only_nulls`). Of
the values, only the pages with the wanted records are decoded (`column_pages`). The caller has fetched the whole row
group: it is one range of the object, and the pages of one record are spread over it, column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.column_pages import ColumnPage, column_pages, decode_values, holds_only_nulls
from tidelog.storage.parquet.parquet_format import Footer, check_groups, decode_checked, decode_rows, parsing
from tidelog.storage.parquet.row_group_extract import ExtractedGroups
from tidelog.storage.records import RECORD_SCHEMA, TIMESTAMP
from tidelog.storage.segments.span_groups import GroupBounds, SpanGroup
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, partition_bounds

_OFTEN_ABSENT = ("key", "headers")
_PLACE_IN_TIME = ("offset", "timestamp")

KEPT_PART = 2
"""Records that take less than this fraction (one in 2) of the memory that they refer to are copied."""

Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"


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
    """The segment `key`, its footer, and `data`: the bytes of consecutive row groups, from `base` of the object on."""

    key: str
    footer: Footer
    data: memoryview
    base: int

    def of(self, groups: Sequence[SpanGroup]) -> memoryview:
        """The bytes of some of the row groups, which are consecutive."""
        return self.data[groups[0].group.start - self.base : groups[-1].group.end - self.base]

    def check(self, groups: Sequence[SpanGroup]) -> None:
        """Compare every byte of consecutive row groups with its checksum. Raises `Corrupt`."""
        check_groups(self.key, [each.group for each in groups], self.of(groups))


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


def decode_span(stored: StoredGroups, groups: Sequence[SpanGroup], wanted: Wanted) -> pa.Table:
    """The wanted records (`RECORD_SCHEMA`) of `groups`, which are consecutive, and possibly more, to the end of a page
    or row group; none if all are below `wanted.offset`. Raises `Corrupt` naming the segment."""
    tables: list[pa.Table] = []
    stored.check(groups)
    for part, some in groupby(groups, wanted.is_part_of):
        if part:
            tables += [_decode_slice(stored, each, wanted) for each in some]
        else:
            tables.append(_decode_whole(stored, tuple(some), wanted))
    return _whole(stored.key, tables[0] if len(tables) == 1 else pa.concat_tables(tables))


def decode_group(stored: StoredGroups, each: SpanGroup) -> pa.Table:
    """All rows (`STORED_SCHEMA`) of a row group, for `cut_span`. Raises `Corrupt`."""
    return decode_rows(stored.key, SEGMENT_FLAVOR, stored.footer, [each.group], stored.of((each,)))


def cut_span(key: str, rows: pa.Table, each: SpanGroup, wanted: Wanted) -> pa.Table:
    """The records (`RECORD_SCHEMA`) of a span from `wanted.offset` on, of all `rows` of a row group. Raises
    `Corrupt`."""
    mine = _checked(key, rows.slice(each.first_row, each.rows), (each,), wanted)
    with parsing(key):
        return _whole(key, _as_records(mine.slice(_row_of(mine, wanted.offset)), {}))


def offset_by_timestamp(stored: StoredGroups, each: SpanGroup, wanted: Wanted, timestamp_ms: int) -> int | None:
    """The first offset from `wanted.offset` on among the rows of the span at `timestamp_ms` or later. Raises
    `Corrupt`."""
    stored.check((each,))
    rows = _decode_columns(stored, (each,), _PLACE_IN_TIME, wanted)
    rows = rows.slice(_row_of(rows, wanted.offset))
    late = np.flatnonzero(rows["timestamp"].cast(pa.int64()).to_numpy() >= timestamp_ms * 1_000)
    return int(rows["offset"][int(late[0])].as_py()) if len(late) else None


def choose_pages(pages: Sequence[ColumnPage], row: int, end_row: int, wanted: Wanted) -> Sequence[ColumnPage]:
    """The page that holds `row` and the following ones, until they hold the wanted records or reach `end_row`. Pure."""
    chosen: list[ColumnPage] = []
    raw_bytes = 0
    for page in pages:
        if page.next_row <= row:
            continue
        chosen.append(page)
        ahead = page.next_row - row
        raw_bytes += page.raw_bytes * min(ahead, page.rows) // page.rows
        if ahead >= min(wanted.records_max, end_row - row) or raw_bytes >= wanted.bytes_max:
            break
    return chosen


def _decode_whole(stored: StoredGroups, groups: Sequence[SpanGroup], wanted: Wanted) -> pa.Table:
    """The records of `groups` from `wanted.offset` on."""
    rows = _decode_columns(stored, groups, RECORD_SCHEMA.names, wanted)
    with parsing(stored.key):
        return _as_records(rows.slice(_row_of(rows, wanted.offset)), {})


def _decode_slice(stored: StoredGroups, each: SpanGroup, wanted: Wanted) -> pa.Table:
    """The wanted records of one row group."""
    footer, data = stored.footer, stored.of((each,))
    with parsing(stored.key):
        chunk = footer.metadata.row_group(each.group.index).column(footer.columns["value"].leaf)
        pages = column_pages(chunk, data, each.group.start)
        absent = _absent_columns(footer, each, data)
    if pages is None:
        return _decode_whole(stored, (each,), wanted)
    names = [name for name in RECORD_SCHEMA.names if name != "value" and name not in absent]
    rest = _decode_columns(stored, (each,), names, wanted)
    skipped = _row_of(rest, wanted.offset)
    row = each.first_row + skipped
    if row == each.end_row:
        return RECORD_SCHEMA.empty_table()
    chosen = choose_pages(pages, row, each.end_row, wanted)
    count = min(chosen[-1].next_row, each.end_row) - row
    others: dict[str, Column] = {name: pa.nulls(count, RECORD_SCHEMA.field(name).type) for name in absent}
    with parsing(stored.key):
        others["value"] = decode_values(chosen, data).slice(row - chosen[0].first_row, count)
        return _as_records(rest.slice(skipped, count), others)


def _decode_columns(
    stored: StoredGroups, groups: Sequence[SpanGroup], names: Sequence[str], wanted: Wanted
) -> pa.Table:
    """The columns `names`, `offset` among them, of the rows of the span. The partition of each row is checked: by the
    statistics, or in a shared row group by itself."""
    shared = any(each.shared for each in groups)
    read = ["partition", *names] if shared else names
    footer, data = stored.footer, stored.of(groups)
    whole = decode_checked(stored.key, SEGMENT_FLAVOR, footer, [each.group for each in groups], data, read)
    rows = whole.slice(groups[0].first_row, sum(each.rows for each in groups))
    return _checked(stored.key, rows, groups, wanted)


def _checked(key: str, rows: pa.Table, groups: Sequence[SpanGroup], wanted: Wanted) -> pa.Table:
    """`rows` of `groups` without their partitions, which are checked, and so are the limits of their offsets."""
    bounds = [partition_bounds(each.group) for each in groups if not each.shared]
    if "partition" in rows.column_names:
        ends = pc.min_max(rows["partition"])
        bounds.append((ends["min"].as_py(), ends["max"].as_py()))
        rows = rows.drop_columns(["partition"])
    if any(each != (wanted.partition, wanted.partition) for each in bounds):
        raise foreign_rows(key, wanted.partition)
    first, last = rows["offset"][0].as_py(), rows["offset"][-1].as_py()
    if first < groups[0].base_offset or last > groups[-1].last_offset:
        raise Corrupt(key, f"has offsets {first} to {last}, which its manifest or its statistics exclude")
    return rows


def _whole(key: str, records: pa.Table) -> pa.Table:
    """`records`, whose order is checked. A few of many are copied, because they would keep the memory of all."""
    offsets = records["offset"].to_numpy()
    if not bool(np.all(offsets[1:] > offsets[:-1])):
        raise Corrupt(key, "its offsets are not ascending within a partition")
    if records.get_total_buffer_size() <= KEPT_PART * records.nbytes:
        return records
    return records.take(np.arange(records.num_rows))


def _as_records(rows: pa.Table, others: Mapping[str, Column]) -> pa.Table:
    """`rows` and the columns `others` as `RECORD_SCHEMA`. Raises `pa.ArrowInvalid` for a timestamp between two
    milliseconds."""
    columns = {**dict(zip(rows.column_names, rows.columns, strict=True)), **others}
    columns["timestamp"] = columns["timestamp"].cast(TIMESTAMP)
    return pa.Table.from_arrays([columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)


def _absent_columns(footer: Footer, each: SpanGroup, data: memoryview) -> frozenset[str]:
    """The columns that no record of the row group has."""
    metadata, group = footer.metadata, each.group
    leaves = {name: footer.columns[name].leaf for name in _OFTEN_ABSENT}
    return frozenset(
        name for name, leaf in leaves.items() if holds_only_nulls(metadata, group.index, leaf, data, group.start)
    )


def _row_of(rows: pa.Table, offset: int) -> int:
    return int(np.searchsorted(rows["offset"].to_numpy(), offset))
