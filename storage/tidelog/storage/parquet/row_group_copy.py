"""Copies row groups from Parquet objects into a new one as they are stored, without decoding a page.

    source = CopySource(key, flavor, body)          # checks the footer
    source.check()                                  # checks all row groups
    copier = RowGroupCopier(target_flavor)          # in memory, or into a file
    copier.add(source, 3)
    copier.write(records)                           # a row group that is encoded
    body = copier.finish(header_json)

The bytes of a row group do not say where they are in the file. Only the footer does: for each column, the position of
its first data page and of its dictionary. A copy needs a new footer with other positions, and nothing else. pyarrow
cannot write such a footer, so this module writes it: it keeps the bytes of each row group's metadata, statistics
included, and exchanges the positions. Copying costs a fifteenth of decoding and encoding (ADR 0030).

Sources and target have the same columns, field ids included (`Footer.has_only_ours`). Page indexes and bloom filters
lie outside the row groups and are not copied; a copy has none. Source of the field numbers: ``parquet.thrift`` of the
Apache Parquet format."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.parquet_encoder import encode_row_groups, write_checksums
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor, zstd_level
from tidelog.storage.parquet.parquet_format import (
    CHECKSUM_DIGITS,
    CHECKSUMS_KEY,
    FORMAT_KEY,
    HEADER_KEY,
    MAGIC,
    TAIL_BYTES,
    Footer,
    RowGroup,
    decode_footer,
)
from tidelog.storage.parquet.thrift_compact import (
    I32,
    I64,
    LIST,
    STRUCT,
    Damaged,
    Encoded,
    Listed,
    Number,
    Places,
    Struct,
    StructReader,
    write_struct,
    written_number,
)

_FORMAT_VERSION = 2
_CREATED_BY = b"tidelog"
_SCHEMA, _ROW_GROUPS, _ORDERS = 2, 4, 7  # fields of a footer


_FILE_OFFSET, _ORDINAL = (1, 2), (7,)
_CHANGED: Places = {1: {2: None, 3: {9: None, 11: None}}, 5: None, 7: None}
"""What a copy changes of a row group: of each column the deprecated position of its metadata, and the positions of its
first data page and of its dictionary; its own position, and its number."""
_ORDINAL_MAX = 2**15 - 1


@dataclass(frozen=True)
class _Group:
    """The metadata of a row group in Thrift, cut out around the numbers that a copy changes."""

    pieces: Sequence[bytes]
    numbers: Sequence[Number]

    def moved(self, by: int, ordinal: int) -> Encoded:
        """The row group `by` bytes further on, as number `ordinal` of its file."""
        fixed = {_FILE_OFFSET: 0, _ORDINAL: min(ordinal, _ORDINAL_MAX)}
        numbers = (written_number(fixed.get(each.path, each.value + by)) for each in self.numbers)
        return Encoded(b"".join(chain.from_iterable(zip(self.pieces, chain(numbers, [b""]), strict=True))), STRUCT)


@dataclass(frozen=True)
class _Metadata:
    """A footer's row groups, and its schema and column orders in Thrift."""

    groups: Sequence[_Group]
    schema: bytes
    orders: bytes


class CopySource:
    """An object of `flavor` with the bytes `body`, whose row groups can be copied. `footer`: if it was read before;
    then `body` may be only the object's end, from the footer on. Raises `Corrupt` naming `key`."""

    def __init__(self, key: str, flavor: ParquetFlavor, body: Body, footer: Footer | None = None) -> None:
        self.key = key
        self.flavor = flavor
        self.body = memoryview(body).cast("B")
        self.footer = footer or decode_footer(key, flavor, self.body, len(self.body))

    @cached_property
    def metadata(self) -> _Metadata:
        """What a copy needs of the footer. To read it takes as long as to copy the row groups, so an object of which
        nothing is copied does without. Raises `Corrupt`."""
        try:
            footer = self.body[self.footer.start - self.footer.object_bytes : -TAIL_BYTES]
            return _read_metadata(StructReader(footer))
        except Damaged as error:
            raise Corrupt(self.key, f"its footer is not Thrift: {error}") from error

    def check(self) -> None:
        """Compare the bytes of every row group with its checksum. Raises `Corrupt`. Call it before the first copy."""
        for group in self.footer.row_groups:
            if zlib.crc32(self.bytes_of(group.index)) != group.crc32:
                raise Corrupt(self.key, f"row group {group.index} does not have its checksum")

    def bytes_of(self, index: int) -> memoryview:
        """The bytes of a row group."""
        group = self.footer.row_groups[index]
        return self.body[group.start : group.end]


class RowGroupCopier:
    """Makes one object of `flavor` of row groups of others, by `write` (None: in memory)."""

    def __init__(self, flavor: ParquetFlavor, write: Callable[[bytes | memoryview], object] | None = None) -> None:
        assert not flavor.has_index, "indexes are not copied"
        self._flavor = flavor
        self._pieces: list[memoryview | bytes] = []
        self._write = write or self._pieces.append
        self._write(MAGIC)
        self._size = len(MAGIC)
        self._rows = 0
        self._groups: list[Encoded] = []
        self._copied: list[RowGroup] = []
        self._like: CopySource | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the object so far."""
        return self._size

    @property
    def row_groups(self) -> Sequence[RowGroup]:
        """The row groups that were added, as their sources describe them."""
        return self._copied

    def write(self, row_group: pa.Table) -> None:
        """Append `row_group`, which is encoded. The first one settles the level of compression."""
        level = zstd_level(self._flavor.zstd_levels, row_group["value"])
        self._flavor = replace(self._flavor, zstd_levels=(level,))
        body = encode_row_groups(self._flavor, row_group, [row_group], b"{}")
        self.add(CopySource("rows", self._flavor, body), 0)

    def add(self, source: CopySource, index: int, data: memoryview | None = None) -> None:
        """Append row group `index` of `source`. `data`: its bytes, if the source has only the end of the object."""
        self._like = self._like or source
        assert source.footer.has_only_ours, "all sources have the same columns"
        assert source.footer.index_crc32 is None, "indexes are not copied"
        group, stored = source.metadata.groups[index], source.footer.row_groups[index]
        self._write(source.bytes_of(index) if data is None else data)
        self._groups.append(group.moved(self._size - stored.start, len(self._groups)))
        self._size += stored.end - stored.start
        self._rows += stored.rows
        self._copied.append(stored)

    def close(self, header_json: bytes) -> Sequence[int]:
        """Write the footer. Returns the end of each row group, for `fill_in_checksums`."""
        self._write(self._tail(header_json))
        return list(accumulate((group.end - group.start for group in self._copied), initial=len(MAGIC)))[1:]

    def finish(self, header_json: bytes) -> memoryview:
        """The whole object, in memory. Copying tens of MB does not hold the GIL, which producers would wait for. A row
        group keeps the checksum of its source."""
        tail = self._tail(header_json)
        body = pa.allocate_buffer(self._size + len(tail))
        with pa.FixedSizeBufferWriter(body) as sink:
            for piece in (*self._pieces, tail):
                sink.write(piece)
        view = memoryview(body).cast("B")
        write_checksums(view, [group.crc32 for group in self._copied])
        return view.toreadonly()

    def _tail(self, header_json: bytes) -> bytes:
        footer = write_struct(self._footer(header_json))
        return footer + len(footer).to_bytes(4, "little") + MAGIC

    def _footer(self, header_json: bytes) -> Struct:
        assert self._like is not None, "an object holds at least one row group"
        ours = {
            FORMAT_KEY: self._flavor.name.encode(),
            HEADER_KEY: header_json,
            CHECKSUMS_KEY: b"0" * CHECKSUM_DIGITS * (1 + len(self._copied)),
        }
        return Struct(
            {
                1: I32(_FORMAT_VERSION),
                _SCHEMA: Encoded(self._like.metadata.schema, LIST),
                3: I64(self._rows),
                _ROW_GROUPS: Listed(self._groups),
                5: Listed([Struct({1: name.encode(), 2: value}) for name, value in ours.items()]),
                6: _CREATED_BY,
                _ORDERS: Encoded(self._like.metadata.orders, LIST),  # without it, readers ignore statistics
            }
        )


def _read_metadata(reader: StructReader) -> _Metadata:
    groups: list[_Group] = []
    kept = {_SCHEMA: b"", _ORDERS: b""}
    for number, kind in reader.fields():
        start = reader.position
        if number == _ROW_GROUPS:
            groups = [_read_group(reader) for _ in reader.items()]
            continue
        reader.skip(kind)
        if number in kept:
            kept[number] = reader.between(start)
    return _Metadata(groups, kept[_SCHEMA], kept[_ORDERS])


def _read_group(reader: StructReader) -> _Group:
    start = reader.position
    numbers = list(reader.numbers(_CHANGED))
    edges = [start, *chain.from_iterable((each.start, each.end) for each in numbers), reader.position]
    return _Group([reader.between(*edges[at : at + 2]) for at in range(0, len(edges), 2)], numbers)
