"""The format of Tidelog's Parquet objects: plain Parquet with checksums over every byte.

Any reader sees a Parquet file (page checksums on). Its columns are found by field id, then by name (`stored_columns`).
Some entries of the footer's key-value metadata are Tidelog's:

- ``tidelog.format``: kind and version, such as ``wal/2``. An unknown one is refused.
- ``tidelog.header``: JSON that belongs to the kind (`wal_codec`, `topic_segment`).
- ``tidelog.checksums``: CRC32s of eight hexadecimal digits each: of the footer, of each row group, and of the indexes
  (of pages, bloom filters) if there are any.
- ``tidelog.pages``: where the pages of each row group are, with checksums (`page_map`). Earlier programs did not write
  it, and ignore it.

Parquet's own page checksums do not cover page headers and the footer. A flipped bit there makes readers allocate
gigabytes, crash, or return wrong records. So the footer is checked before anything parses it, and a row group before
anything decodes it. The footer's CRC32 is computed with its own eight digits as ``00000000``. The digits have a fixed
width, so the encoder (`parquet_encoder`) writes them in place once the bytes are known.

    "PAR1" | row group 0 | row group 1 | ... | indexes | footer (Thrift) | footer's length, 4 bytes | "PAR1"

A CRC32 detects damage, not malice: everybody with write access to the bucket is trusted to write valid Parquet.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.column_pages import chunk_start
from tidelog.storage.parquet.page_map import GroupPages, decoded_map
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.stored_columns import StoredColumn, stored_columns

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""The footer's length and the magic, which `footer_bytes` needs."""

FORMAT_KEY = "tidelog.format"
HEADER_KEY = "tidelog.header"
CHECKSUMS_KEY = "tidelog.checksums"
PAGES_KEY = "tidelog.pages"

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
    """A checked footer, at `start` of the object of `object_bytes`. `columns`: where the object has the columns of the
    flavor, by their names; `has_only_ours`: it has no others, and in the same order. `index_crc32` is the checksum of
    the bytes between the last row group and the footer; None if there are none. `page_maps`: one for each row group, or
    none at all (`page_map`)."""

    header_json: bytes
    start: int
    object_bytes: int
    row_groups: tuple[RowGroup, ...]
    metadata: pq.FileMetaData
    columns: Mapping[str, StoredColumn]
    has_only_ours: bool
    index_crc32: int | None
    page_maps: Sequence[str] = ()

    def pages_of(self, key: str, group: RowGroup) -> GroupPages | None:
        """The pages of `group` with their checksums, if the object states them. Raises `Corrupt` naming `key`."""
        if not self.page_maps:
            return None
        with parsing(key):
            return decoded_map(self.page_maps[group.index], self.metadata, group.index, group.crc32)

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
    footer, _ = _checked(key, tail)
    with parsing(key):
        return _header(key, flavor, pq.read_metadata(pa.BufferReader(footer)))


def decode_footer(key: str, flavor: ParquetFlavor, tail: bytes | memoryview, object_bytes: int) -> Footer:
    """The footer from the last bytes of an object of `object_bytes`."""
    footer, others = _checked(key, tail)
    start = object_bytes - len(footer)
    with parsing(key):
        metadata = pq.read_metadata(pa.BufferReader(footer))
        header_json = _header(key, flavor, metadata)
        schema = metadata.schema.to_arrow_schema()
        columns = stored_columns(key, flavor.schema, schema)
        has_index = len(others) > metadata.num_row_groups
        if len(others) != metadata.num_row_groups + has_index:
            raise Corrupt(key, f"has {metadata.num_row_groups} row groups and {len(others)} checksums")
        bounded = [columns[name].leaf for name in flavor.statistics]
        groups = _row_groups(key, bounded, metadata, others, start)
    index_crc32 = others[-1] if has_index else None
    ours = schema.remove_metadata().equals(flavor.schema, check_metadata=True)
    maps = _page_maps(key, metadata)
    return Footer(header_json, start, object_bytes, groups, metadata, columns, ours, index_crc32, maps)


def _checked(key: str, tail: bytes | memoryview) -> tuple[memoryview, Sequence[int]]:
    """A footer's bytes, its length and the magic included, and the checksums of the parts before it."""
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
    return footer, numbers[1:]


@contextmanager
def parsing(key: str) -> Iterator[None]:
    """Turns errors of Parquet's reader into `Corrupt`. The bytes have passed their checksum, so an error means that
    another program wrote the object."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, MemoryError) as error:
        raise Corrupt(key, f"cannot be read as Parquet: {error}") from error


def _header(key: str, flavor: ParquetFlavor, metadata: pq.FileMetaData) -> bytes:
    ours = metadata.metadata or {}
    name = ours.get(FORMAT_KEY.encode(), b"of no format of Tidelog's").decode(errors="replace")
    kind, _, version = name.partition("/")
    if kind != flavor.form.name or not version.isdecimal():
        raise Corrupt(key, f"is {name}; here belongs an object of the format {flavor.form.name!r}")
    flavor.form.check(key, int(version))
    return ours.get(HEADER_KEY.encode(), b"")


def _page_maps(key: str, metadata: pq.FileMetaData) -> Sequence[str]:
    stated = (metadata.metadata or {}).get(PAGES_KEY.encode())
    if stated is None:
        return ()
    maps = stated.decode().split(",")
    if len(maps) != metadata.num_row_groups:
        raise Corrupt(key, f"has {metadata.num_row_groups} row groups and {len(maps)} maps of pages")
    return maps


def _row_groups(
    key: str, bounded: Sequence[int], metadata: pq.FileMetaData, checksums: Sequence[int], end: int
) -> tuple[RowGroup, ...]:
    """The row groups, with the bounds of the leaf columns `bounded`. Together with the indexes they must fill the
    object from the magic to `end`, the footer."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    has_index = len(checksums) > len(groups)
    last = [_end(group.column(group.num_columns - 1)) for group in groups[-1:]] if has_index else [end]
    edges = [*(chunk_start(group.column(0)) for group in groups), *last]
    if edges[:1] != [len(MAGIC)] or edges != sorted(edges) or edges[-1] > end:
        raise Corrupt(key, "its row groups do not fill it")
    return tuple(
        RowGroup(
            index=index,
            start=edges[index],
            end=edges[index + 1],
            crc32=crc32,
            rows=groups[index].num_rows,
            raw_bytes=groups[index].total_byte_size,
            bounds=tuple(_bounds(key, groups[index].column(column)) for column in bounded),
        )
        for index, crc32 in enumerate(checksums[: len(groups)])
    )


def _end(column: pq.ColumnChunkMetaData) -> int:
    return chunk_start(column) + int(column.total_compressed_size)


def _bounds(key: str, column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        raise Corrupt(key, f"lacks the statistics of {column.path_in_schema}")
    return cast(int, statistics.min_raw), cast(int, statistics.max_raw)
