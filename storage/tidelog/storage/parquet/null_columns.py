"""Whether a column of a row group holds nothing but nulls, told from a few bytes.

Most records have no headers, and many no key; yet to decode twenty thousand absent lists of headers takes as long as
the offsets, timestamps and keys beside them. A page without any value is only its levels, each a single run of zeros:

    4 bytes: length | varint: rows << 1 | a zero        definition levels; before them, for lists, repetition levels

A page whose bytes are these is taken for what it is, and every other is left to Parquet's reader.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.parquet.thrift_compact import StructReader
from tidelog.storage.parquet.column_pages import ColumnPage, column_pages


def holds_only_nulls(metadata: pq.FileMetaData, group: int, column: int, data: memoryview, base: int) -> bool:
    """Of the row group whose bytes are `data` and lie at `base` of their object; the column by its number among the
    leaves. False may also mean that it cannot be told. Raises `ValueError` for bytes that are no pages."""
    pages = column_pages(metadata.row_group(group).column(column), data, base)
    levels = 2 if metadata.schema.column(column).max_repetition_level else 1
    return pages is not None and all(_is_null_page(page, data, levels) for page in pages)


def _is_null_page(page: ColumnPage, data: memoryview, levels: int) -> bool:
    nulls = _run_of_zeros(page.rows) * levels
    if page.raw_bytes != len(nulls):  # so nothing large is made of bytes that nobody has checked
        return False
    reader = StructReader(data[: page.end], page.start)
    reader.struct()
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
