"""Copies row groups from Parquet objects into a new one as they are stored, without decoding a page.

    source = CopySource(key, flavor, body)          # checks the footer
    source.check()                                  # checks all row groups
    copier = RowGroupCopier(target_flavor)
    copier.add(source, 3)
    body = copier.finish(header_json)

The bytes of a row group do not say where they are in the file. Only the footer does: for each column, the position of
its first data page and of its dictionary. A copy needs a new footer with other positions, and nothing else. pyarrow
cannot write such a footer, so this module writes it: it keeps the bytes of each column's metadata, statistics included,
and exchanges the positions. Copying costs a fifteenth of decoding and encoding (ADR 0030).

Sources and target have the same columns, field ids included. Page indexes and bloom filters lie outside the row groups
and are not copied; a copy has none. Source of the field numbers: ``parquet.thrift`` of the Apache Parquet format.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tidelog.storage.errors import Corrupt
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.parquet_encoder import fill_in_checksums
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
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
    Struct,
    StructReader,
    write_struct,
    written_number,
)

_FORMAT_VERSION = 2
_CREATED_BY = b"tidelog"


@dataclass(frozen=True)
class _Column:
    """The metadata of a column chunk in Thrift, cut out around the positions of its pages. `dictionary` is the position
    of its dictionary page; None if it has none."""

    before: bytes
    data: int
    between: bytes
    dictionary: int | None
    after: bytes

    def moved(self, by: int) -> Struct:
        """The chunk `by` bytes further on."""
        found = [self.before, written_number(self.data + by), self.between]
        if self.dictionary is not None:
            found += [written_number(self.dictionary + by), self.after]
        return Struct({2: I64(0), 3: Encoded(b"".join(found), STRUCT)})


@dataclass(frozen=True)
class _Group:
    columns: Sequence[_Column]
    raw_bytes: int


@dataclass(frozen=True)
class _Metadata:
    """A footer's row groups, and its schema and column orders in Thrift."""

    groups: Sequence[_Group]
    schema: bytes
    orders: bytes


class CopySource:
    """An object of `flavor` with the bytes `body`, whose row groups can be copied. Raises `Corrupt` naming `key`."""

    def __init__(self, key: str, flavor: ParquetFlavor, body: Body) -> None:
        view = memoryview(body).cast("B")
        self.key = key
        self.flavor = flavor
        self.footer: Footer = decode_footer(key, flavor, view, len(view))
        self.body = view

    @cached_property
    def metadata(self) -> _Metadata:
        """What a copy needs of the footer. To read it takes as long as to copy the row groups, so an object of which
        nothing is copied does without. Raises `Corrupt`."""
        try:
            return _read_metadata(StructReader(self.body[self.footer.start : len(self.body) - TAIL_BYTES]))
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
    """Makes one object of `flavor` of row groups of others, in memory."""

    def __init__(self, flavor: ParquetFlavor) -> None:
        assert not flavor.has_index, "indexes are not copied"
        self._flavor = flavor
        self._pieces: list[memoryview | bytes] = [MAGIC]
        self._size = len(MAGIC)
        self._ends: list[int] = []
        self._rows = 0
        self._groups: list[Struct] = []
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

    def add(self, source: CopySource, index: int) -> None:
        """Append row group `index` of `source`."""
        like = self._like = self._like or source
        assert source.metadata.schema == like.metadata.schema, "all sources have the same columns"
        group, stored = source.metadata.groups[index], source.footer.row_groups[index]
        self._pieces.append(source.bytes_of(index))
        self._groups.append(_described(group, stored, self._size - stored.start))
        self._size += stored.end - stored.start
        self._ends.append(self._size)
        self._rows += stored.rows
        self._copied.append(stored)

    def finish(self, header_json: bytes) -> memoryview:
        """The whole object."""
        footer = write_struct(self._footer(header_json))
        body = bytearray().join([*self._pieces, footer, len(footer).to_bytes(4, "little"), MAGIC])
        view = memoryview(body)
        fill_in_checksums(view, self._ends)
        return view.toreadonly()

    def _footer(self, header_json: bytes) -> Struct:
        assert self._like is not None, "an object holds at least one row group"
        ours = {
            FORMAT_KEY: self._flavor.name.encode(),
            HEADER_KEY: header_json,
            CHECKSUMS_KEY: b"0" * CHECKSUM_DIGITS * (1 + len(self._ends)),
        }
        return Struct(
            {
                1: I32(_FORMAT_VERSION),
                2: Encoded(self._like.metadata.schema, LIST),
                3: I64(self._rows),
                4: Listed(self._groups),
                5: Listed([Struct({1: name.encode(), 2: value}) for name, value in ours.items()]),
                6: _CREATED_BY,
                7: Encoded(self._like.metadata.orders, LIST),  # without it, readers ignore statistics
            }
        )


def _described(group: _Group, stored: RowGroup, moved_by: int) -> Struct:
    return Struct(
        {
            1: Listed([column.moved(moved_by) for column in group.columns]),
            2: I64(group.raw_bytes),
            3: I64(stored.rows),
            5: I64(stored.start + moved_by),
            6: I64(stored.end - stored.start),
        }
    )


def _read_metadata(reader: StructReader) -> _Metadata:
    groups: list[_Group] = []
    schema = orders = b""
    for number, kind in reader.fields():
        start = reader.position
        if number == 4:
            groups = [_read_group(reader) for _ in reader.items()]
            continue
        reader.skip(kind)
        if number == 2:
            schema = reader.between(start)
        elif number == 7:
            orders = reader.between(start)
    return _Metadata(groups, schema, orders)


def _read_group(reader: StructReader) -> _Group:
    columns: list[_Column] = []
    raw_bytes = 0
    for number, kind in reader.fields():
        if number == 1:
            columns = [_read_chunk(reader) for _ in reader.items()]
        elif number == 2:
            raw_bytes = reader.number()
        else:
            reader.skip(kind)
    return _Group(columns, raw_bytes)


def _read_chunk(reader: StructReader) -> _Column:
    column = None
    for number, kind in reader.fields():
        if number == 3:
            column = _read_column(reader)
        else:
            reader.skip(kind)
    if column is None:
        raise Damaged("a column chunk without metadata")
    return column


def _read_column(reader: StructReader) -> _Column:
    """Field 9 is the position of the first data page, 11 that of the dictionary; fields come in ascending order."""
    start, positions, cuts = reader.position, {}, []
    for number, kind in reader.fields():
        if number not in (9, 11):
            reader.skip(kind)
            continue
        value_at = reader.position
        positions[number] = reader.number()
        cuts.append((value_at, reader.position))
    if list(positions) not in ([9], [9, 11]):
        raise Damaged("a column chunk without a position")
    edges = [start, *(edge for cut in cuts for edge in cut), reader.position]
    pieces = [reader.between(edges[place], edges[place + 1]) for place in range(0, len(edges), 2)]
    return _Column(pieces[0], positions[9], pieces[1], positions.get(11), b"".join(pieces[2:]))
