"""Encodes Tidelog's Parquet (`parquet_format`) in memory.

    body = encode_parquet(flavor, table, header_json)
    body = encode_row_groups(settings_for(flavor, first), [first, second], header_json)

A segment may be larger than memory. It is written row group by row group (`row_group_copy`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pyarrow as pa

from tidelog.storage.parquet.parquet_flavor import (
    ParquetFlavor,
    WriterSettings,
    open_writer,
    row_group_rows,
    settings_for,
)
from tidelog.storage.parquet.parquet_format import (
    CHECKSUM_DIGITS,
    CHECKSUMS,
    CHECKSUMS_KEY,
    FORMAT_KEY,
    HEADER_KEY,
    MAGIC,
    TAIL_BYTES,
    footer_bytes,
)


def encode_parquet(
    flavor: ParquetFlavor, table: pa.Table, header_json: bytes, ends: Sequence[int] | None = None
) -> memoryview:
    """`table` as an object of `flavor`, whose row groups end before the rows `ends`; None: they are of equal size. Its
    columns have the types of the flavor's schema, or are dictionaries of them. Holds the GIL only between row groups,
    and copies nothing."""
    if ends is None:
        rows = row_group_rows(table)
        ends = [min(table.num_rows, first_row + rows) for first_row in range(0, table.num_rows, rows)]
    edges = [0, *ends]
    groups = [table] if len(ends) == 1 else [table.slice(first, end - first) for first, end in pairwise(edges)]
    return encode_row_groups(settings_for(flavor, groups[0] if groups else table), groups, header_json)


def encode_row_groups(settings: WriterSettings, row_groups: Iterable[pa.Table], header_json: bytes) -> memoryview:
    """`row_groups` as an object."""
    sink = pa.BufferOutputStream()
    writer = open_writer(settings, sink)
    ends: list[int] = []
    for row_group in row_groups:
        writer.write_table(row_group, row_group_size=max(1, row_group.num_rows))
        ends.append(sink.tell())
    metadata = {FORMAT_KEY: settings.flavor.name, HEADER_KEY: header_json.decode()}
    checksums = 1 + len(ends) + settings.flavor.has_index
    writer.add_key_value_metadata(metadata | {CHECKSUMS_KEY: "0" * CHECKSUM_DIGITS * checksums})
    writer.close()
    body = memoryview(sink.getvalue()).cast("B")
    fill_in_checksums(body, ends)
    return body.toreadonly()


def fill_in_checksums(body: memoryview, ends: Sequence[int]) -> None:
    """Compute the checksums of all parts of `body`, whose row groups end at `ends`, and write them into its footer."""
    footer_at = len(body) - footer_bytes("", body[-TAIL_BYTES:])
    edges = [len(MAGIC), *ends]
    if _room(body[footer_at:])[1] > len(edges):
        edges.append(footer_at)  # the indexes lie between the row groups and the footer
    write_checksums(body[footer_at:], [zlib.crc32(body[start:end]) for start, end in pairwise(edges)])


def write_checksums(footer: memoryview, parts: Sequence[int]) -> None:
    """Write the checksums of all `parts` before `footer` into it. Its own comes last, since it covers the others."""
    first, room = _room(footer)
    assert room == 1 + len(parts)
    for place, crc32 in enumerate(parts, start=1):
        position = first + place * CHECKSUM_DIGITS
        footer[position : position + CHECKSUM_DIGITS] = b"%08x" % crc32
    footer[first : first + CHECKSUM_DIGITS] = b"%08x" % zlib.crc32(footer)


def _room(footer: memoryview) -> tuple[int, int]:
    """Where the checksums of a footer begin, and how many there are."""
    found = CHECKSUMS.search(footer)
    assert found is not None
    return found.start(1), len(found.group(1)) // CHECKSUM_DIGITS
