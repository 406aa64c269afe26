"""Decodes the records of a span from row groups, without those of its neighbours and without more than is wanted.

A row group holds some twenty thousand records, and a lookup wants a few of them; a small partition has only a few of
them. Columns of one page are small and decoded whole, unless they have no values. Of the others, mostly the values,
only the pages with the wanted records are decoded (`group_columns`).

The pages of one record are spread over the row group, column by column. So a lookup reads one range: from the row
group's beginning, where the small columns are, to the end of the page of values (`bytes_to_read`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.column_pages import ColumnPage
from tidelog.storage.parquet.group_columns import Column
from tidelog.storage.parquet.page_map import GroupPages, end_of_rows
from tidelog.storage.parquet.parquet_format import Footer, parsing
from tidelog.storage.parquet.row_decoding import decode_checked, decode_rows
from tidelog.storage.records import RECORD_SCHEMA, TIMESTAMP
from tidelog.storage.segments.span_groups import SpanGroup
from tidelog.storage.segments.stored_groups import StoredGroups, Wanted, foreign_rows
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, partition_bounds

_PLACE_IN_TIME = ("offset", "timestamp")

KEPT_PART = 2
"""Records that take less than this fraction (one in 2) of the memory that they refer to are copied."""


def decode_span(stored: StoredGroups, groups: Sequence[SpanGroup], wanted: Wanted) -> pa.Table:
    """The wanted records (`RECORD_SCHEMA`) of `groups`, which are consecutive, and possibly more, to the end of a page
    or row group; none if all are below `wanted.offset`. Raises `Corrupt` naming the segment."""
    tables: list[pa.Table] = []
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


def bytes_to_read(footer: Footer, pages: GroupPages, each: SpanGroup, wanted: Wanted) -> int:
    """How many bytes of a row group with `pages`, from its beginning, have the wanted records.

    Offsets ascend, so a record with n offsets below it in the span has at most n rows before it. A read that begins
    with the first record is likely to go on to the last, so it gets the whole row group."""
    if wanted.offset <= each.base_offset:
        return each.group.end - each.group.start
    row = min(each.first_row + wanted.offset - each.base_offset, each.end_row - 1)
    return end_of_rows(pages, _end_of_slice(footer, pages, each, row, wanted))


def _end_of_slice(footer: Footer, pages: GroupPages, each: SpanGroup, row: int, wanted: Wanted) -> int:
    """The row after the last one that is decoded for a reader of the records from `row` on."""
    chosen = choose_pages(pages[footer.columns["value"].leaf], row, each.end_row, wanted)
    return min(chosen[-1].next_row, each.end_row) if chosen else each.end_row


def _decode_whole(stored: StoredGroups, groups: Sequence[SpanGroup], wanted: Wanted) -> pa.Table:
    """The records of `groups` from `wanted.offset` on."""
    stored.check(groups)
    rows = _decode_columns(stored, groups, RECORD_SCHEMA.names, wanted)
    with parsing(stored.key):
        return _as_records(rows.slice(_row_of(rows, wanted.offset)), {})


def _decode_slice(stored: StoredGroups, each: SpanGroup, wanted: Wanted) -> pa.Table:
    """The wanted records of one row group. A column with several pages is decoded after the wanted rows are known."""
    columns = stored.columns(each)
    at_once = columns.of_one_page & {*RECORD_SCHEMA.names} | {"offset"}
    named = sorted(at_once | {"partition"} if each.shared else at_once)
    rest = _checked(stored.key, columns.decode(named, each.first_row, each.end_row), (each,), wanted)
    skipped = _row_of(rest, wanted.offset)
    row = each.first_row + skipped
    if row == each.end_row:
        return RECORD_SCHEMA.empty_table()
    end_row = _end_of_slice(stored.footer, columns.pages, each, row, wanted)
    others = columns.decode([name for name in RECORD_SCHEMA.names if name not in at_once], row, end_row)
    with parsing(stored.key):
        return _as_records(
            rest.slice(skipped, end_row - row), dict(zip(others.column_names, others.columns, strict=True))
        )


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


def _row_of(rows: pa.Table, offset: int) -> int:
    return int(np.searchsorted(rows["offset"].to_numpy(), offset))
