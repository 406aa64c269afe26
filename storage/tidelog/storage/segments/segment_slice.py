"""Decodes a few records of a row group without the rest of it.

A row group holds some twenty thousand records, and a lookup wants a few of them. Offsets, timestamps, keys and headers
are small and decoded whole, unless there are none (`holds_only_nulls`). Of the values, only the pages with the wanted
records are decoded (`column_pages`). The caller has fetched and checked the whole row group: it is one range of the
object, and the pages of one record are spread over it, column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.storage.parquet.column_pages import ColumnPage, column_pages, decode_values, holds_only_nulls
from tidelog.storage.parquet.parquet_format import Footer, RowGroup, parsing
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_codec import decode_segment_rows

_VALUE = RECORD_SCHEMA.get_field_index("value")
_FIRST_LEAVES = {"key": 2, "headers": 4}
"""The columns that may be all null, with their numbers among Parquet's columns."""
_PLACE_IN_TIME = ("offset", "timestamp")


@dataclass(frozen=True)
class Wanted:
    """At least one record from `offset` on; about `bytes_max` of raw records, or at least `records_max` of them."""

    offset: int
    bytes_max: int
    records_max: int


def decode_slice(key: str, footer: Footer, group: RowGroup, data: memoryview, wanted: Wanted) -> pa.Table:
    """The wanted records of `group`, whose bytes are `data`, as `RECORD_SCHEMA`, and possibly more, to the end of a
    page. `wanted.offset` is not beyond the group. Raises `Corrupt` naming `key`."""
    with parsing(key):
        column = footer.metadata.row_group(group.index).column(_VALUE)
        pages = column_pages(column, data, group.start)
        absent = _absent_columns(footer, group, data)
    if pages is None:
        records = decode_segment_rows(key, footer, [group], data)
        return records.slice(_row_of(records, wanted.offset))
    rest = decode_segment_rows(
        key, footer, [group], data, [name for name in RECORD_SCHEMA.names if name != "value" and name not in absent]
    )
    row = _row_of(rest, wanted.offset)
    chosen = choose_pages(pages, row, wanted)
    with parsing(key):
        values = decode_values(chosen, data)
    last_row = chosen[-1].next_row
    records = rest.slice(row, last_row - row)
    columns = {name: pa.nulls(len(records), RECORD_SCHEMA.field(name).type) for name in absent}
    columns |= dict(zip(records.column_names, records.columns, strict=True))
    columns["value"] = values.slice(row - chosen[0].first_row)
    return pa.Table.from_arrays([columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)


def offset_by_timestamp(key: str, footer: Footer, group: RowGroup, data: memoryview, timestamp_ms: int) -> int | None:
    """The first offset in `group`, whose bytes are `data`, at `timestamp_ms` or later. Raises `Corrupt`."""
    records = decode_segment_rows(key, footer, [group], data, _PLACE_IN_TIME)
    late = np.flatnonzero(records["timestamp"].cast(pa.int64()).to_numpy() >= timestamp_ms)
    return int(records["offset"][int(late[0])].as_py()) if len(late) else None


def choose_pages(pages: Sequence[ColumnPage], row: int, wanted: Wanted) -> Sequence[ColumnPage]:
    """The page that holds `row` and the following ones, until they hold the wanted records. Pure."""
    chosen: list[ColumnPage] = []
    raw_bytes = 0
    for page in pages:
        if page.next_row <= row:
            continue
        chosen.append(page)
        ahead = page.next_row - row
        raw_bytes += page.raw_bytes * min(ahead, page.rows) // page.rows
        if ahead >= wanted.records_max or raw_bytes >= wanted.bytes_max:
            break
    return chosen


def _absent_columns(footer: Footer, group: RowGroup, data: memoryview) -> frozenset[str]:
    """The columns that no record of `group` has."""
    return frozenset(
        name
        for name, leaf in _FIRST_LEAVES.items()
        if holds_only_nulls(footer.metadata, group.index, leaf, data, group.start)
    )


def _row_of(records: pa.Table, offset: int) -> int:
    return int(np.searchsorted(records["offset"].to_numpy(), offset))
