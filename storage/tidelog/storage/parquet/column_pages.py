"""Single pages of a column of a row group, decoded without the others.

Values are most of a row group, and decompressing them is most of the work of reading it. A Parquet column is a sequence
of pages, each compressed by itself, whose headers give their numbers of rows. So a reader that wants a few of some
twenty thousand records decodes one page of values instead of eight. Parquet's page index also locates the pages, but
the row group is in memory, and walking from header to header takes microseconds.

pyarrow reads whole column chunks only. So it gets the chosen pages as a file of one column, with a footer made here;
the pages are not copied.

    pages = column_pages(group, data, base)
    few = [page for page in pages if page.first_row <= row < page.next_row]
    values = decode_values(few, data)

`holds_only_nulls` recognizes a column without any value by its pages' bytes. Most records have no headers, and many no
key, but decoding twenty thousand absent lists of headers takes as long as decoding the offsets, timestamps and keys.

All bytes have passed their checksum before (`parquet_format`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.parquet.parquet_format import MAGIC
from tidelog.storage.parquet.thrift_compact import (
    I32,
    I64,
    STRUCT,
    Damaged,
    Listed,
    Places,
    Struct,
    StructReader,
    write_struct,
)

_DATA_PAGE, _BYTE_ARRAY, _OPTIONAL, _ZSTD = 0, 6, 1, 6  # of Parquet's enumerations
_ENCODINGS = (0, 3, 6, 7)  # PLAIN, RLE, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY; the reader goes by the pages' own
_COLUMN = b"value"
_KIND, _RAW_BYTES, _STORED_BYTES, _ROWS = (1,), (2,), (3,), (5, 1)
_PAGE_HEADER: Places = {1: None, 2: None, 3: None, 5: {1: None}}


@dataclass(frozen=True)
class ColumnPage:
    """Bytes ``[start, end)`` of the row group, the page's header included, with `rows` rows from row `first_row` of the
    group. Uncompressed it has `raw_bytes`."""

    start: int
    end: int
    first_row: int
    rows: int
    raw_bytes: int

    @property
    def next_row(self) -> int:
        return self.first_row + self.rows


def column_pages(column: pq.ColumnChunkMetaData, data: memoryview, base: int) -> Sequence[ColumnPage] | None:
    """The pages of `column`, in a row group with the bytes `data` at `base` of its object. None if they cannot be read
    one by one: with a dictionary, or of a kind that Tidelog does not write. Raises `ValueError` for bytes that are not
    pages."""
    if column.has_dictionary_page or column.compression != "ZSTD":
        return None
    start = column.data_page_offset - base
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


def decode_values(pages: Sequence[ColumnPage], data: memoryview) -> pa.ChunkedArray[Any]:
    """The values in `pages`, which are consecutive in `data`, and not at its beginning: other columns come before them.
    The bytes have passed the checksum of their row group. Raises what pyarrow's reader raises."""
    first, last = pages[0], pages[-1]
    rows = last.next_row - first.first_row
    footer = _footer(1, last.end - first.start, sum(page.raw_bytes for page in pages), rows)
    metadata = pq.read_metadata(pa.BufferReader(footer))
    # The pages begin at 1, since the reader takes 0 for "no offset". A file object in Python would wait for the GIL.
    source = pa.BufferReader(pa.py_buffer(data[first.start - 1 : last.end]))
    with pq.ParquetFile(source, metadata=metadata, pre_buffer=False) as file:
        return file.read(use_threads=False).column(0)


def _footer(base: int, stored_bytes: int, raw_bytes: int, rows: int) -> bytes:
    """The footer of a Parquet file with one column of `rows` values, in `stored_bytes` from `base` on."""
    column = Struct(
        {
            1: I32(_BYTE_ARRAY),
            2: Listed([I32(encoding) for encoding in _ENCODINGS]),
            3: Listed([_COLUMN]),
            4: I32(_ZSTD),
            5: I64(rows),
            6: I64(raw_bytes),
            7: I64(stored_bytes),
            9: I64(base),
        }
    )
    group = Struct({1: Listed([Struct({2: I64(base), 3: column})]), 2: I64(raw_bytes), 3: I64(rows)})
    root = Struct({4: b"schema", 5: I32(1)})
    leaf = Struct({1: I32(_BYTE_ARRAY), 3: I32(_OPTIONAL), 4: _COLUMN})
    text = write_struct(Struct({1: I32(2), 2: Listed([root, leaf]), 3: I64(rows), 4: Listed([group])}))
    return text + len(text).to_bytes(4, "little") + MAGIC


def holds_only_nulls(metadata: pq.FileMetaData, group: int, column: int, data: memoryview, base: int) -> bool:
    """Whether leaf column `column` of row group `group`, with the bytes `data` at `base` of its object, has no value.
    False may also mean "unknown". Raises `ValueError` for bytes that are not pages.

    Such a page has levels only, each a single run of zeros; levels are definition levels and, for lists, repetition
    levels before them:

        4 bytes: length | varint: rows << 1 | a zero

    Every other page is left to Parquet's reader."""
    pages = column_pages(metadata.row_group(group).column(column), data, base)
    levels = 2 if metadata.schema.column(column).max_repetition_level else 1
    return pages is not None and all(_is_null_page(page, data, levels) for page in pages)


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
