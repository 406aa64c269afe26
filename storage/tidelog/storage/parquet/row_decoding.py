"""Decodes row groups of an object, after a comparison of their bytes with their checksums.

A decoder gets the bytes of the row groups that it needs, as a file that is made of them (`made_file`): a file object in
Python, of which only a part is there, would wait for the GIL at every read, longer than all the rest takes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.made_file import made_file, whole_chunk
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import MAGIC, Footer, RowGroup, decode_footer, parsing
from tidelog.storage.parquet.stored_columns import StoredColumn, leaves_of
from tidelog.storage.parquet.thrift_compact import I64, Listed, Struct


def decode_parquet(key: str, flavor: ParquetFlavor, data: bytes | memoryview) -> tuple[Footer, pa.Table]:
    """Decode a whole object, and check every byte of it."""
    view = memoryview(data).cast("B")
    footer = decode_footer(key, flavor, view, len(view))
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise Corrupt(key, "does not begin as Parquet does")
    indexes = view[footer.rows_end : footer.start]
    if footer.index_crc32 is not None and zlib.crc32(indexes) != footer.index_crc32:
        raise Corrupt(key, "its indexes do not have their checksum")
    return footer, decode_rows(key, flavor, footer, footer.row_groups, view)


def decode_rows(
    key: str,
    flavor: ParquetFlavor,
    footer: Footer,
    groups: Sequence[RowGroup],
    data: memoryview,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of `groups`, ascending: checked, then decoded; all columns, or those named. `data`: the whole object, or
    the bytes from the first to the last of the groups."""
    if groups:
        whole = len(data) == footer.object_bytes
        check_groups(key, groups, data[groups[0].start : groups[-1].end] if whole else data)
    return decode_checked(key, flavor, footer, groups, data, columns)


def decode_checked(
    key: str,
    flavor: ParquetFlavor,
    footer: Footer,
    groups: Sequence[RowGroup],
    data: memoryview,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """As `decode_rows`, of `groups` that have passed `check_groups`."""
    schema = flavor.schema if columns is None else pa.schema([flavor.schema.field(name) for name in columns])
    if not groups:
        return schema.empty_table()
    stored = [footer.columns[name] for name in schema.names]
    # The pages' own checksums are not checked: the row group's covers the same bytes and their headers.
    with parsing(key):
        table = _read(footer, stored, groups, data)
        if table.num_rows != sum(group.rows for group in groups):
            raise Corrupt(key, f"has {table.num_rows} rows where its footer says otherwise")
        return pa.Table.from_arrays(table.columns, schema=schema)


def _read(footer: Footer, columns: Sequence[StoredColumn], groups: Sequence[RowGroup], data: memoryview) -> pa.Table:
    """The `columns` of `groups`, from the whole object, or from a file that is made of the row groups."""
    if len(data) == footer.object_bytes:
        names = [column.field.name for column in columns]
        with pq.ParquetFile(pa.BufferReader(data), metadata=footer.metadata) as file:
            return file.read_row_groups([group.index for group in groups], names, use_threads=False).select(names)
    described = []
    for group in groups:
        metadata = footer.metadata.row_group(group.index)
        leaves = (leaf for column in columns for leaf in range(column.leaf, column.leaf + leaves_of(column.field.type)))
        chunks = [whole_chunk(metadata.column(leaf), -groups[0].start) for leaf in leaves]
        described.append(Struct({1: Listed(chunks), 2: I64(group.raw_bytes), 3: I64(group.rows)}))
    schema = pa.schema([column.field for column in columns])
    with made_file(schema, sum(group.rows for group in groups), described, data) as file:
        return file.read(use_threads=False)


def check_groups(key: str, groups: Sequence[RowGroup], data: memoryview) -> None:
    """Compare `groups`, ascending, with their checksums; `data` are the bytes from the first to the last. Raises
    `Corrupt`."""
    base = groups[0].start
    if len(data) != groups[-1].end - base:
        raise Corrupt(key, f"{groups[-1].end - base} bytes from {base} on were to be read, {len(data)} came")
    for group in groups:
        if zlib.crc32(data[group.start - base : group.end - base]) != group.crc32:
            raise Corrupt(key, f"row group {group.index} does not have its checksum")
