"""The pages of a column of a row group, by their headers.

A Parquet column is a sequence of pages, each compressed by itself, whose headers give their numbers of rows. So a
reader that wants a few of some twenty thousand records decodes one page of values instead of many.

    pages = column_pages(chunk, data, base)
    few = [page for page in pages if page.first_row <= row < page.next_row]

`only_nulls` recognizes a column without any value by its pages' bytes. Most records have no headers, and many no key,
but decoding twenty thousand absent lists of headers takes as long as decoding the offsets, timestamps and keys.

All bytes have passed their checksum before (`parquet_format`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.parquet.thrift_compact import STRUCT, Damaged, Places, StructReader

_DATA_PAGE = 0  # of Parquet's enumeration
_KIND, _RAW_BYTES, _STORED_BYTES, _ROWS = (1,), (2,), (3,), (5, 1)
_PAGE_HEADER: Places = {1: None, 2: None, 3: None, 5: {1: None}}


@dataclass(frozen=True)
class ColumnPage:
    """Bytes ``[start, end)`` of the row group, the page's header included, with `rows` rows from row `first_row` of the
    group. Uncompressed it has `raw_bytes`. `crc32s`: of the row group's bytes before the page, and of those up to its
    end; None if they were checked with the row group."""

    start: int
    end: int
    first_row: int
    rows: int
    raw_bytes: int
    crc32s: tuple[int, int] | None = None

    @property
    def next_row(self) -> int:
        return self.first_row + self.rows

    def is_sound(self, data: memoryview) -> bool:
        """Whether the page has its checksum, in the row group with the bytes `data`."""
        return self.crc32s is None or zlib.crc32(data[self.start : self.end], self.crc32s[0]) == self.crc32s[1]


def column_pages(column: pq.ColumnChunkMetaData, data: memoryview, base: int) -> Sequence[ColumnPage] | None:
    """The pages of `column`, in a row group with the bytes `data` at `base` of its object. None if they cannot be read
    one by one: with a dictionary, or of a kind that Tidelog does not write. Raises `ValueError` for bytes that are not
    pages."""
    if column.has_dictionary_page or column.compression != "ZSTD":
        return None
    start = chunk_start(column) - base
    end, row = start + column.total_compressed_size, 0
    pages: list[ColumnPage] = []
    while start < end:
        reader = StructReader(data[:end], start)
        header = {found.path: found.value for found in reader.numbers(_PAGE_HEADER)}
        if header.get(_KIND) != _DATA_PAGE:
            return None
        raw_bytes, stored_bytes, rows = (header.get(path, -1) for path in (_RAW_BYTES, _STORED_BYTES, _ROWS))
        page_end = reader.position + stored_bytes
        if min(raw_bytes, stored_bytes) < 0 or rows <= 0 or page_end > end:
            raise Damaged("a page's header has impossible sizes")
        pages.append(ColumnPage(start, page_end, row, rows, raw_bytes))
        start, row = page_end, row + rows
    if row != column.num_values:
        raise Damaged(f"pages of {row} rows where the footer says {column.num_values}")
    return pages


def chunk_start(column: pq.ColumnChunkMetaData) -> int:
    """The position of a column's first page, of data or of its dictionary, in the object."""
    offset = column.dictionary_page_offset
    return int(column.data_page_offset if offset is None else offset)


def only_nulls(pages: Sequence[ColumnPage], data: memoryview, max_repetition_level: int) -> bool:
    """Whether `pages`, those of a nullable column of the row group with the bytes `data`, have no value. False may also
    mean "unknown". Raises `ValueError` for bytes that are not pages.

    Such a page has levels only, each a single run of zeros; levels are definition levels and, for lists, repetition
    levels before them:

        4 bytes: length | varint: rows << 1 | a zero

    Every other page is left to Parquet's reader."""
    return all(_is_null_page(page, data, 2 if max_repetition_level else 1) for page in pages)


def _is_null_page(page: ColumnPage, data: memoryview, levels: int) -> bool:
    nulls = _run_of_zeros(page.rows) * levels
    if page.raw_bytes != len(nulls):  # so no unchecked size leads to a large allocation
        return False
    reader = StructReader(data[: page.end], page.start)
    reader.skip(STRUCT)
    try:
        return bytes(pa.Codec("zstd").decompress(data[reader.position : page.end], len(nulls))) == nulls
    except OSError:
        return False


def _run_of_zeros(count: int) -> bytes:
    run, left = bytearray(), count << 1
    while left >= 0x80:
        run.append(left & 0x7F | 0x80)
        left >>= 7
    run += bytes((left, 0))
    return len(run).to_bytes(4, "little") + bytes(run)
