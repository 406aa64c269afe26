"""Where the pages of a row group are, with a checksum for each: a reader checks one page without its neighbours.

A segment's footer has such a map for every row group with several pages of a column, under ``tidelog.pages``: a text
for each row group, separated by commas, empty without a map. It is the base64 of four little-endian uint32 for each
page: its bytes with the header, its uncompressed bytes, its rows, and the CRC32 of its bytes. Pages stand in the order
of the object, column by column. A column that cannot be read page by page (with a dictionary, or of lists) counts as
one page, and so does one without any value, which has 0 rows.

Positions count from the beginning of the row group, so a map stays right when the row group is copied. Segments of
earlier programs have no maps; `walked` makes one of the pages' headers. It needs the whole row group, checked.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
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
    crcs = (zlib.crc32(data[start:end]) for start, end in pairwise(edges))
    rows = (
        _PAGE.pack(page.end - page.start, min(page.raw_bytes, _NUMBER_MAX), page.rows, crc)
        for page, crc in zip(every, crcs, strict=True)
    )
    return b64encode(b"".join(rows)).decode()


def decoded_map(text: str, metadata: pq.FileMetaData, group: int) -> GroupPages | None:
    """The inverse of `encoded_map`; None for an empty text. Raises `ValueError` for a map of another row group."""
    if not text:
        return None
    described = metadata.row_group(group)
    every = _numbered(b64decode(text, validate=True))
    columns: list[list[ColumnPage]] = []
    at = 0
    for leaf in range(described.num_columns):
        chunk = described.column(leaf)
        end = at + chunk.total_compressed_size
        pages: list[ColumnPage] = []
        row = 0
        while at < end and every:
            page = replace(every.pop(), first_row=row)
            pages.append(page)
            at, row = page.end, page.next_row
        if at != end or row not in (0, described.num_rows):
            raise ValueError(f"its map of pages does not fit row group {group}")
        columns.append(pages)
    if every:
        raise ValueError(f"its map of pages is longer than row group {group}")
    return columns


def _numbered(data: bytes) -> list[ColumnPage]:
    """The pages that `data` lists, from the last to the first."""
    facts = list(_PAGE.iter_unpack(data))
    ends = accumulate(stored_bytes for stored_bytes, _, _, _ in facts)
    pages = [
        ColumnPage(end - stored_bytes, end, 0, rows, raw_bytes, crc32)
        for end, (stored_bytes, raw_bytes, rows, crc32) in zip(ends, facts, strict=True)
    ]
    return pages[::-1]


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
