"""Where the pages of a row group are, with a checksum for each: a reader checks one page without its neighbours.

A segment's footer has such a map for every row group with several pages of a column, under ``tidelog.pages``: a text
for each row group, separated by commas, empty without a map. It is the base64 of four little-endian uint32 for each
page: its bytes with the header, its uncompressed bytes, its rows, and the CRC32 of the row group up to its end. Pages
stand in the order of the object, column by column. A column that cannot be read page by page (with a dictionary, or of
lists) counts as one page, and so does one without any value, which has 0 rows.

A CRC32 continues from that of the bytes before it. So a page is checked alone, from the CRC32 at its beginning to that
at its end, and the last one is the row group's checksum.

Positions count from the beginning of the row group, so a map stays right when the row group is copied. Segments of
earlier programs have no maps; `walked` makes one of the pages' headers. It needs the whole row group, checked.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

import pyarrow.parquet as pq

from tidelog.storage.parquet.column_pages import ColumnPage, chunk_start, column_pages, only_nulls

GroupPages: TypeAlias = Sequence[Sequence[ColumnPage]]
"""The pages of each leaf column of a row group."""

_PAGE = struct.Struct("<4I")
_NUMBER_MAX = 2**32 - 1


def walked(metadata: pq.FileMetaData, group: int, data: memoryview, base: int) -> GroupPages:
    """The pages of a row group with the bytes `data`, which were checked, at `base` of its object. They have no
    checksums. Raises `ValueError` for bytes that are not pages."""
    leaves = range(metadata.num_columns)
    return [_column(metadata, metadata.row_group(group), leaf, data, base) for leaf in leaves]


def encoded_map(pages: GroupPages, data: memoryview) -> str:
    """The map of a row group with the bytes `data`; empty if no column has several pages."""
    every = list(chain.from_iterable(pages))
    edges = [0, *(page.end for page in every)]
    if len(every) == len(pages) or edges != [*(page.start for page in every), len(data)] or len(data) > _NUMBER_MAX:
        return ""
    rows, crc32 = [], 0
    for page in every:
        crc32 = zlib.crc32(data[page.start : page.end], crc32)
        rows.append(_PAGE.pack(page.end - page.start, min(page.raw_bytes, _NUMBER_MAX), page.rows, crc32))
    return b64encode(b"".join(rows)).decode()


def decoded_map(text: str, metadata: pq.FileMetaData, group: int, group_crc32: int) -> GroupPages | None:
    """The inverse of `encoded_map`, for a row group with this checksum; None for an empty text. Raises `ValueError` for
    a map of another row group."""
    if not text:
        return None
    described, data = metadata.row_group(group), b64decode(text, validate=True)
    if len(data) % _PAGE.size:
        raise ValueError(f"its map of pages ends in the middle of a page of row group {group}")
    facts = _PAGE.iter_unpack(data)
    columns: list[list[ColumnPage]] = []
    end = at = before = 0
    for leaf in range(described.num_columns):
        at, end, row = end, end + described.column(leaf).total_compressed_size, 0
        pages: list[ColumnPage] = []
        while at < end and (page := next(facts, None)):
            stored_bytes, raw_bytes, rows, crc32 = page
            pages.append(ColumnPage(at, at + stored_bytes, row, rows, raw_bytes, (before, crc32)))
            at, row, before = at + stored_bytes, row + rows, crc32
        if at != end or row not in (0, described.num_rows):
            raise ValueError(f"its map of pages does not fit row group {group}")
        columns.append(pages)
    if next(facts, None) or before != group_crc32:
        raise ValueError(f"its map of pages is not that of row group {group}")
    return columns


def end_of_rows(pages: GroupPages, row: int) -> int:
    """How many bytes of the row group, from its beginning, have all columns of the rows before `row`."""
    return max(page.end for column in pages for page in column if page.rows and page.first_row < row)


def is_sound(pages: GroupPages, metadata: pq.FileMetaData, group: int, data: memoryview, base: int) -> bool:
    """Whether a map that an object states is that of its row group, with the bytes `data`, which were checked. Raises
    `ValueError`."""
    found = walked(metadata, group, data, base)
    unchecked = [[replace(page, crc32s=None) for page in column] for column in pages]
    every = chain.from_iterable(pages)
    return unchecked == [list(column) for column in found] and all(page.is_sound(data) for page in every)


def _column(
    metadata: pq.FileMetaData, group: pq.RowGroupMetaData, leaf: int, data: memoryview, base: int
) -> Sequence[ColumnPage]:
    chunk, kind = group.column(leaf), metadata.schema.column(leaf)
    pages = column_pages(chunk, data, base)
    nulls = pages is not None and kind.max_definition_level > 0 and only_nulls(pages, data, kind.max_repetition_level)
    if pages is not None and not nulls and kind.max_repetition_level == 0:
        return pages
    start = chunk_start(chunk) - base
    end = start + chunk.total_compressed_size
    return [ColumnPage(start, end, 0, 0 if nulls else group.num_rows, chunk.total_uncompressed_size)]
