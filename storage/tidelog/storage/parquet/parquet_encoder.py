"""Writes Tidelog's Parquet (`parquet_format`): a whole table at once, or row group by row group into a file.

    encoder = ParquetEncoder(flavor, first_rows, sink)          # chooses settings by the first rows
    encoder.write(row_group)                                    # once per row group
    ends = encoder.close(header_json)
    fill_in_checksums(body, ends)                               # body: the sink's bytes, in memory or a mapped file

An object larger than memory is written to a file, which is then mapped for its checksums and its upload.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pyarrow as pa

from tidelog.storage.parquet.parquet_flavor import ParquetFlavor, open_writer, row_group_rows
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
    return encode_row_groups(flavor, groups[0] if groups else table, groups, header_json)


def encode_row_groups(
    flavor: ParquetFlavor, like: pa.Table, row_groups: Iterable[pa.Table], header_json: bytes
) -> memoryview:
    """`row_groups` as an object of `flavor`. The settings follow from the rows `like`."""
    sink = pa.BufferOutputStream()
    encoder = ParquetEncoder(flavor, like, sink)
    for row_group in row_groups:
        encoder.write(row_group)
    ends = encoder.close(header_json)
    body = memoryview(sink.getvalue()).cast("B")
    fill_in_checksums(body, ends)
    return body.toreadonly()


class ParquetEncoder:
    """Writes one object of `flavor` to `sink`, which stays open. The settings follow from `like`, the rows of the first
    row group."""

    def __init__(self, flavor: ParquetFlavor, like: pa.Table, sink: pa.NativeFile) -> None:
        self._flavor = flavor
        self._sink = sink
        self._writer = open_writer(flavor, like, sink)
        self._ends: list[int] = []

    def write(self, row_group: pa.Table) -> None:
        """Append `row_group` as one row group."""
        self._writer.write_table(row_group, row_group_size=max(1, row_group.num_rows))
        self._ends.append(self._sink.tell())

    def close(self, header_json: bytes) -> Sequence[int]:
        """Write the indexes and the footer. Returns the end of each row group, for `fill_in_checksums`."""
        metadata = {FORMAT_KEY: self._flavor.name, HEADER_KEY: header_json.decode()}
        checksums = 1 + len(self._ends) + self._flavor.has_index
        self._writer.add_key_value_metadata(metadata | {CHECKSUMS_KEY: "0" * CHECKSUM_DIGITS * checksums})
        self._writer.close()
        return self._ends

    def abandon(self) -> None:
        """Write no more, finished or not: otherwise pyarrow's finalizer writes a footer, and reports that it failed."""
        self._writer.is_open = False


def fill_in_checksums(body: memoryview, ends: Sequence[int]) -> None:
    """Compute the checksums of all parts of `body`, whose row groups end at `ends`, and write them into its footer."""
    footer_at = len(body) - footer_bytes("", body[-TAIL_BYTES:])
    edges = [len(MAGIC), *ends]
    if _room(body[footer_at:])[1] > len(edges):
        edges.append(footer_at)  # the indexes lie between the row groups and the footer
    write_checksums(body, [zlib.crc32(body[start:end]) for start, end in pairwise(edges)])


def write_checksums(body: memoryview, parts: Sequence[int]) -> None:
    """Write the checksums of all `parts` before the footer into it. The footer's own comes last, since it covers the
    others."""
    footer = body[-footer_bytes("", body[-TAIL_BYTES:]) :]
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
