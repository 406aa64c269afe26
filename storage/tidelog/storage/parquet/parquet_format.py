"""The format of Tidelog's Parquet objects: plain Parquet with checksums over every byte.

Any reader sees a Parquet file (columns of `records.RECORD_SCHEMA`, page checksums on). Three entries of the footer's
key-value metadata are Tidelog's:

- ``tidelog.format``: kind and version, such as ``wal/2``. An unknown one is refused.
- ``tidelog.header``: JSON that belongs to the kind (`wal_codec`, `topic_segment`).
- ``tidelog.checksums``: CRC32s of eight hexadecimal digits each: of the footer, of each row group, and of the indexes
  (of pages, bloom filters) if there are any.

Parquet's own page checksums do not cover page headers and the footer. A flipped bit there makes readers allocate
gigabytes, crash, or return wrong records. So the footer is checked before anything parses it, and a row group before
anything decodes it. The footer's CRC32 is computed with its own eight digits as ``00000000``. The digits have a fixed
width, so the encoder (`parquet_encoder`) writes them in place once the bytes are known.

    "PAR1" | row group 0 | row group 1 | ... | indexes | footer (Thrift) | footer's length, 4 bytes | "PAR1"

A CRC32 detects damage, not malice: everybody with write access to the bucket is trusted to write valid Parquet.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.sparse_file import SparseFile

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""The footer's length and the magic, which `footer_bytes` needs."""

FORMAT_KEY = "tidelog.format"
HEADER_KEY = "tidelog.header"
CHECKSUMS_KEY = "tidelog.checksums"

CHECKSUM_DIGITS = 8
# The entry in Thrift's compact protocol: the key, field 2 of type binary, a varint length, the digits, stop.
CHECKSUMS = re.compile(re.escape(CHECKSUMS_KEY.encode()) + rb"\x18[\x80-\xff]{0,4}[\x00-\x7f]((?:[0-9a-f]{8})+)\x00")


@dataclass(frozen=True)
class RowGroup:
    """Bytes ``[start, end)`` of the object hold `rows` rows, which take `raw_bytes` uncompressed. `bounds` has the
    least and greatest number of each column in the flavor's `statistics`."""

    index: int
    start: int
    end: int
    crc32: int
    rows: int
    raw_bytes: int
    bounds: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Footer:
    """A checked footer, at `start` of the object of `object_bytes`. `index_crc32` is the checksum of the bytes between
    the last row group and the footer; None if there are none."""

    header_json: bytes
    start: int
    object_bytes: int
    row_groups: tuple[RowGroup, ...]
    metadata: pq.FileMetaData
    index_crc32: int | None = None

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    @property
    def rows_end(self) -> int:
        """The end of the last row group."""
        return self.row_groups[-1].end if self.row_groups else len(MAGIC)


def footer_bytes(key: str, tail: bytes | memoryview) -> int:
    """The size of the footer at the object's end. `tail` has at least the object's last `TAIL_BYTES`."""
    if len(tail) < TAIL_BYTES or bytes(tail[-4:]) != MAGIC:
        raise Corrupt(key, "does not end as Parquet does: it is truncated, or not an object of Tidelog")
    return int.from_bytes(tail[-8:-4], "little") + TAIL_BYTES


def decode_header(key: str, flavor: ParquetFlavor, tail: bytes | memoryview) -> bytes:
    """The header's JSON from the object's last bytes, at least `footer_bytes` of them."""
    footer = _checked(key, tail).footer
    with parsing(key):
        return _header(key, flavor, pq.read_metadata(pa.BufferReader(footer)))


def decode_footer(key: str, flavor: ParquetFlavor, tail: bytes | memoryview, object_bytes: int) -> Footer:
    """The footer from the last bytes of an object of `object_bytes`."""
    checked = _checked(key, tail)
    start = object_bytes - len(checked.footer)
    with parsing(key):
        metadata = pq.read_metadata(pa.BufferReader(checked.footer))
        header_json = _header(key, flavor, metadata)
        if not metadata.schema.to_arrow_schema().equals(flavor.schema):
            raise Corrupt(key, f"its columns are not those of {flavor.name}")
        has_index = len(checked.others) > metadata.num_row_groups
        if len(checked.others) != metadata.num_row_groups + has_index:
            raise Corrupt(key, f"has {metadata.num_row_groups} row groups and {len(checked.others)} checksums")
        groups = _row_groups(key, flavor, metadata, checked.others, start)
    index_crc32 = checked.others[-1] if has_index else None
    return Footer(header_json, start, object_bytes, groups, metadata, index_crc32)


def decode_rows(
    key: str,
    flavor: ParquetFlavor,
    footer: Footer,
    groups: Sequence[RowGroup],
    data: memoryview,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of consecutive `groups`, whose bytes are `data`: checked, then decoded; all columns, or those named."""
    schema = flavor.schema if columns is None else pa.schema([flavor.schema.field(name) for name in columns])
    if not groups:
        return schema.empty_table()
    file_object = cast(
        io.IOBase, SparseFile(data, groups[0].start, footer.object_bytes)
    )  # PythonFile needs only its methods
    return _decoded(key, schema, footer, groups, data, pa.PythonFile(file_object, mode="r"))


def decode_row_groups(
    key: str, flavor: ParquetFlavor, footer: Footer, groups: Sequence[RowGroup], body: memoryview
) -> pa.Table:
    """The rows of some `groups`, ascending, of the object `body`: checked, then decoded."""
    if not groups:
        return flavor.schema.empty_table()
    # A file object in Python would wait for the GIL at every read, longer than all the rest takes.
    data = body[groups[0].start : groups[-1].end]
    return _decoded(key, flavor.schema, footer, groups, data, pa.BufferReader(body))


def _decoded(
    key: str, schema: pa.Schema, footer: Footer, groups: Sequence[RowGroup], data: memoryview, source: pa.NativeFile
) -> pa.Table:
    """The rows of `groups` from `source`, after their bytes, `data`, are checked."""
    check_groups(key, groups, data)
    # The pages' own checksums are not checked: the row group's covers the same bytes and their headers.
    with parsing(key), pq.ParquetFile(source, metadata=footer.metadata) as file:
        table = file.read_row_groups([group.index for group in groups], columns=schema.names, use_threads=False)
    if table.num_rows != sum(group.rows for group in groups):
        raise Corrupt(key, f"has {table.num_rows} rows where its footer says otherwise")
    return pa.Table.from_arrays(table.select(schema.names).columns, schema=schema)


def check_groups(key: str, groups: Sequence[RowGroup], data: memoryview) -> None:
    """Compare `groups`, ascending, with their checksums; `data` are the bytes from the first to the last. Raises
    `Corrupt`."""
    base = groups[0].start
    if len(data) != groups[-1].end - base:
        raise Corrupt(key, f"{groups[-1].end - base} bytes from {base} on were to be read, {len(data)} came")
    for group in groups:
        if zlib.crc32(data[group.start - base : group.end - base]) != group.crc32:
            raise Corrupt(key, f"row group {group.index} does not have its checksum")


def decode_parquet(key: str, flavor: ParquetFlavor, data: bytes | memoryview) -> tuple[Footer, pa.Table]:
    """Decode a whole object, and check every byte of it."""
    view = memoryview(data).cast("B")
    footer = decode_footer(key, flavor, view, len(view))
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise Corrupt(key, "does not begin as Parquet does")
    indexes = view[footer.rows_end : footer.start]
    if footer.index_crc32 is not None and zlib.crc32(indexes) != footer.index_crc32:
        raise Corrupt(key, "its indexes do not have their checksum")
    return footer, decode_row_groups(key, flavor, footer, footer.row_groups, view)


@dataclass(frozen=True)
class _Checked:
    """A footer's bytes, its length and the magic included, and the checksums of the parts before it."""

    footer: memoryview
    others: tuple[int, ...]


def _checked(key: str, tail: bytes | memoryview) -> _Checked:
    length = footer_bytes(key, tail)
    if length > len(tail):
        raise Corrupt(key, f"its footer takes {length} bytes, of which {len(tail)} are there")
    footer = memoryview(tail).cast("B")[len(tail) - length :]
    found = CHECKSUMS.search(footer)
    if found is None:
        raise Corrupt(key, "its footer lacks Tidelog's checksums: it is damaged, or another program wrote it")
    first, digits = found.start(1), found.group(1)
    crc32 = zlib.crc32(
        footer[first + CHECKSUM_DIGITS :], zlib.crc32(b"0" * CHECKSUM_DIGITS, zlib.crc32(footer[:first]))
    )
    numbers = [int(digits[place : place + CHECKSUM_DIGITS], 16) for place in range(0, len(digits), CHECKSUM_DIGITS)]
    if numbers[0] != crc32:
        raise Corrupt(key, "its footer does not have its checksum")
    return _Checked(footer, tuple(numbers[1:]))


@contextmanager
def parsing(key: str) -> Iterator[None]:
    """Turns errors of Parquet's reader into `Corrupt`. The bytes have passed their checksum, so an error means that
    another program wrote the object."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, IndexError, MemoryError) as error:
        raise Corrupt(key, f"cannot be read as Parquet: {error}") from error


def _header(key: str, flavor: ParquetFlavor, metadata: pq.FileMetaData) -> bytes:
    ours = metadata.metadata or {}
    name = ours.get(FORMAT_KEY.encode(), b"of no format of Tidelog's").decode(errors="replace")
    kind, _, version = name.partition("/")
    if kind != flavor.form.name or not version.isdecimal():
        raise Corrupt(key, f"is {name}; here belongs an object of the format {flavor.form.name!r}")
    flavor.form.check(key, int(version))
    return ours.get(HEADER_KEY.encode(), b"")


def _row_groups(
    key: str, flavor: ParquetFlavor, metadata: pq.FileMetaData, checksums: Sequence[int], end: int
) -> tuple[RowGroup, ...]:
    """The row groups. Together with the indexes they must fill the object from the magic to `end`, the footer."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    has_index = len(checksums) > len(groups)
    last = [_end(group.column(group.num_columns - 1)) for group in groups[-1:]] if has_index else [end]
    edges = [*(_start(group.column(0)) for group in groups), *last]
    if edges[:1] != [len(MAGIC)] or edges != sorted(edges) or edges[-1] > end:
        raise Corrupt(key, "its row groups do not fill it")
    columns = [flavor.schema.names.index(name) for name in flavor.statistics]
    return tuple(
        RowGroup(
            index=index,
            start=edges[index],
            end=edges[index + 1],
            crc32=crc32,
            rows=groups[index].num_rows,
            raw_bytes=groups[index].total_byte_size,
            bounds=tuple(_bounds(key, groups[index].column(column)) for column in columns),
        )
        for index, crc32 in enumerate(checksums[: len(groups)])
    )


def _start(column: pq.ColumnChunkMetaData) -> int:
    offset = column.dictionary_page_offset
    return int(column.data_page_offset if offset is None else offset)


def _end(column: pq.ColumnChunkMetaData) -> int:
    return _start(column) + int(column.total_compressed_size)


def _bounds(key: str, column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        raise Corrupt(key, f"lacks the statistics of {column.path_in_schema}")
    return cast(int, statistics.min_raw), cast(int, statistics.max_raw)
