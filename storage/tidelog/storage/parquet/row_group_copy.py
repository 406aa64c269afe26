"""Makes an object of the bucket of row groups: of other objects, as they are stored, and of rows that are encoded.

    source = CopySource(key, flavor, body)          # checks the footer
    source.check()                                  # checks all row groups
    copier = RowGroupCopier(target_flavor)          # in memory, or into a file
    copier.add(source, 3)
    copier.write(records)                           # a row group that is encoded
    body = copier.finish(header_json)

The bytes of a row group do not say where they are in the file. Only the footer does: for each column, the position of
its first data page and of its dictionary (`row_group_metadata`). A copy needs a new footer with other positions, and
nothing else. pyarrow cannot write such a footer, so this module writes it. Copying costs a fifteenth of decoding and
encoding (ADR 0030). A row group keeps the checksum of its source, and the map of its pages; one that has no map gets it
(`page_map`).

Sources and target have the same columns, field ids included (`Footer.has_only_ours`). Page indexes and bloom filters
lie outside the row groups. They are copied if the target's flavor has them; then its sources must have them, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.page_map import encoded_map, walked
from tidelog.storage.parquet.parquet_encoder import encode_row_groups, write_checksums
from tidelog.storage.parquet.parquet_flavor import PAGE_RAW_BYTES, ParquetFlavor, WriterSettings, settings_for
from tidelog.storage.parquet.parquet_format import (
    CHECKSUM_DIGITS,
    CHECKSUMS_KEY,
    FORMAT_KEY,
    HEADER_KEY,
    MAGIC,
    PAGES_KEY,
    TAIL_BYTES,
    Footer,
    RowGroup,
    decode_footer,
    parsing,
)
from tidelog.storage.parquet.row_group_metadata import GroupIndex, GroupMetadata, read_group
from tidelog.storage.parquet.thrift_compact import (
    I32,
    I64,
    LIST,
    Damaged,
    Encoded,
    Listed,
    Struct,
    StructReader,
    write_struct,
)

_FORMAT_VERSION = 2
_CREATED_BY = b"tidelog"
_SCHEMA, _ROW_GROUPS, _ORDERS = 2, 4, 7  # fields of a footer


@dataclass(frozen=True)
class _Metadata:
    """A footer's row groups, and its schema and column orders in Thrift."""

    groups: Sequence[GroupMetadata]
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

    def page_map(self, index: int, data: memoryview) -> str:
        """The map of a row group's pages (`page_map`), whose bytes are `data`. Raises `Corrupt`."""
        group = self.footer.row_groups[index]
        if self.footer.page_maps:
            return self.footer.page_maps[index]
        if group.raw_bytes <= PAGE_RAW_BYTES:
            return ""
        with parsing(self.key):
            return encoded_map(walked(self.footer.metadata, index, data, group.start), data)


@dataclass(frozen=True)
class _Added:
    """A row group of the new object: its metadata and description in its source, how far it was moved, its indexes, and
    the map of its pages."""

    metadata: GroupMetadata
    stored: RowGroup
    moved_by: int
    indexes: Sequence[GroupIndex]
    page_map: str


class RowGroupCopier:
    """Makes one object of `flavor` of row groups, encoded or copied from others, by `write` (None: in memory)."""

    def __init__(self, flavor: ParquetFlavor, write: Callable[[bytes | memoryview], object] | None = None) -> None:
        self._flavor = flavor
        self._settings: WriterSettings | None = None
        self._pieces: list[memoryview | bytes] = []
        self._write_piece = write or self._pieces.append
        self._size = 0
        self._write(MAGIC)
        self._added: list[_Added] = []
        self._like: CopySource | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the object so far."""
        return self._size

    @property
    def row_groups(self) -> Sequence[RowGroup]:
        """The row groups that were added, as their sources describe them."""
        return [added.stored for added in self._added]

    def write(self, row_group: pa.Table) -> None:
        """Append `row_group`, which is encoded. The first one settles dictionaries and the level of compression."""
        self._settings = self._settings or settings_for(self._flavor, row_group)
        body = encode_row_groups(self._settings, [row_group], b"{}")
        self.add(CopySource("rows", self._flavor, body), 0)

    def add(self, source: CopySource, index: int, data: memoryview | None = None) -> None:
        """Append row group `index` of `source`, whose bytes were checked. `data`: its bytes, if the source has only the
        end of the object."""
        assert source.footer.has_only_ours, "all sources have the same columns"
        assert self._flavor.has_index or source.footer.index_crc32 is None, "indexes are copied into indexes"
        self._like = self._like or source
        metadata, stored = source.metadata.groups[index], source.footer.row_groups[index]
        data = source.bytes_of(index) if data is None else data
        moved_by = self._size - stored.start
        indexes = metadata.indexes(source.body, moved_by) if self._flavor.has_index else ()
        self._added.append(_Added(metadata, stored, moved_by, indexes, source.page_map(index, data)))
        self._write(data)

    def close(self, header_json: bytes) -> None:
        """Write the indexes and the footer."""
        indexes = list(chain.from_iterable(added.indexes for added in self._added))
        places = accumulate((len(each.data) for each in indexes), initial=self._size)
        placed = dict(zip(indexes, places, strict=False))
        checksums = [added.stored.crc32 for added in self._added]
        if self._flavor.has_index:
            checksums.append(zlib.crc32(b"".join(each.data for each in indexes)))
        for each in indexes:
            self._write(each.data)
        text = write_struct(self._footer(header_json, placed, len(checksums)))
        footer = bytearray(text + len(text).to_bytes(4, "little") + MAGIC)
        write_checksums(memoryview(footer), checksums)
        self._write(bytes(footer))

    def finish(self, header_json: bytes) -> memoryview:
        """The whole object, in memory. Copying tens of MB does not hold the GIL, which producers would wait for."""
        self.close(header_json)
        body = pa.allocate_buffer(self._size)
        with pa.FixedSizeBufferWriter(body) as sink:
            for piece in self._pieces:
                sink.write(piece)
        return memoryview(body).cast("B").toreadonly()

    def _write(self, piece: bytes | memoryview) -> None:
        self._write_piece(piece)
        self._size += len(piece)

    def _footer(self, header_json: bytes, placed: Mapping[GroupIndex, int], checksums: int) -> Struct:
        assert self._like is not None, "an object holds at least one row group"
        ours = {
            FORMAT_KEY: self._flavor.name.encode(),
            HEADER_KEY: header_json,
            CHECKSUMS_KEY: b"0" * CHECKSUM_DIGITS * (1 + checksums),
        }
        if any(added.page_map for added in self._added):
            ours[PAGES_KEY] = ",".join(added.page_map for added in self._added).encode()
        groups = [
            added.metadata.moved(added.moved_by, ordinal, [(each, placed[each]) for each in added.indexes])
            for ordinal, added in enumerate(self._added)
        ]
        return Struct(
            {
                1: I32(_FORMAT_VERSION),
                _SCHEMA: Encoded(self._like.metadata.schema, LIST),
                3: I64(sum(added.stored.rows for added in self._added)),
                _ROW_GROUPS: Listed(groups),
                5: Listed([Struct({1: name.encode(), 2: value}) for name, value in ours.items()]),
                6: _CREATED_BY,
                _ORDERS: Encoded(self._like.metadata.orders, LIST),  # without it, readers ignore statistics
            }
        )


def _read_metadata(reader: StructReader) -> _Metadata:
    groups: list[GroupMetadata] = []
    kept = {_SCHEMA: b"", _ORDERS: b""}
    for number, kind in reader.fields():
        start = reader.position
        if number == _ROW_GROUPS:
            groups = [read_group(reader) for _ in reader.items()]
            continue
        reader.skip(kind)
        if number in kept:
            kept[number] = reader.between(start)
    return _Metadata(groups, kept[_SCHEMA], kept[_ORDERS])
