"""Makes a Parquet file of row groups of stored objects, of which only these row groups are in memory.

    pieces = extracted_file(STORED_SCHEMA, [ExtractedGroups(footer, groups, data), ...])

The answer to a fetch hands out stored row groups this way (`docs/http-api.md`). The file has no statistics, indexes or
checksums of Tidelog's, so its footer is made from the few numbers that a reader needs to decode. `row_group_copy`
makes objects of the bucket instead: it keeps the statistics, for which it needs the source's footer as bytes.

Source of the field numbers and of the numbers below: ``parquet.thrift`` of the Apache Parquet format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.parquet.parquet_format import MAGIC, TAIL_BYTES, Footer, RowGroup
from tidelog.storage.parquet.thrift_compact import (
    I32,
    I64,
    LIST,
    STRUCT,
    Encoded,
    Listed,
    Struct,
    StructReader,
    Written,
    write_struct,
    written_number,
)

_FORMAT_VERSION = 2
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_ENCODINGS = {
    "PLAIN": 0,
    "PLAIN_DICTIONARY": 2,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": 8,
    "BYTE_STREAM_SPLIT": 9,
}

KINDS_MAX = 1_000
"""Kinds of column chunks, in Thrift, that are remembered: eight columns in a few encodings each."""
_NUMBER_HEADS = (b"\x16", b"\x16", b"\x16", b"\x26", b"\x26")
"""The heads of the fields 5, 6, 7, 9 and 11, each an I64: how far the field's number is from the one before, and the
type. They are the numbers of a column chunk: values, uncompressed and compressed bytes, and the positions of its first
data page and its dictionary."""


@dataclass(frozen=True)
class ExtractedGroups:
    """Some consecutive row groups, at least one, of the object with `footer`; `data` are their bytes, checked."""

    footer: Footer
    groups: Sequence[RowGroup]
    data: memoryview


def extracted_file(schema: pa.Schema, parts: Sequence[ExtractedGroups]) -> Sequence[memoryview]:
    """The file with the row groups of `parts`, at least one, in their order, as pieces. All have the columns of
    `schema`. The row groups are not copied."""
    position, groups = len(MAGIC), []
    for part in parts:
        moved_by = position - part.groups[0].start
        groups += [_described(part.footer.metadata.row_group(each.index), each, moved_by) for each in part.groups]
        position += len(part.data)
    rows = sum(each.rows for part in parts for each in part.groups)
    fields: dict[int, Written] = {
        1: I32(_FORMAT_VERSION),
        2: Encoded(_schema(schema), LIST),
        3: I64(rows),
        4: Listed(groups),
    }
    footer = write_struct(Struct(fields))
    end = footer + len(footer).to_bytes(4, "little") + MAGIC
    return [memoryview(MAGIC), *(part.data for part in parts), memoryview(end)]


def _described(group: pq.RowGroupMetaData, stored: RowGroup, moved_by: int) -> Struct:
    return Struct(
        {
            1: Listed([_column(group.column(place), moved_by) for place in range(group.num_columns)]),
            2: I64(stored.raw_bytes),
            3: I64(stored.rows),
            5: I64(stored.start + moved_by),
            6: I64(stored.end - stored.start),
        }
    )


def _column(column: pq.ColumnChunkMetaData, moved_by: int) -> Struct:
    kind = _kind(column.physical_type, column.encodings, column.path_in_schema, column.compression)
    sizes = (column.num_values, column.total_uncompressed_size, column.total_compressed_size)
    positions = [column.data_page_offset + moved_by]
    if column.dictionary_page_offset is not None:
        positions.append(column.dictionary_page_offset + moved_by)
    numbers = b"".join(map(bytes.__add__, _NUMBER_HEADS, map(written_number, (*sizes, *positions))))
    return Struct({2: I64(0), 3: Encoded(kind + numbers + b"\0", STRUCT)})


@lru_cache(KINDS_MAX)
def _kind(physical_type: str, encodings: tuple[str, ...], path: str, compression: str) -> bytes:
    """The fields of a column chunk's metadata that many chunks have in common, without the end of the struct."""
    fields: dict[int, Written] = {
        1: I32(_TYPES.index(physical_type)),
        2: Listed([I32(_ENCODINGS[name]) for name in encodings]),
        3: Listed([name.encode() for name in path.split(".")]),
        4: I32(_CODECS.index(compression)),
    }
    return write_struct(Struct(fields))[:-1]


@cache
def _schema(schema: pa.Schema) -> bytes:
    """The schema in Thrift, as pyarrow writes it into every footer."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, version="2.6", store_schema=False)
    body = memoryview(sink.getvalue()).cast("B")
    length = int.from_bytes(body[-TAIL_BYTES:-4], "little") + TAIL_BYTES
    reader = StructReader(body[-length:-TAIL_BYTES])
    for number, kind in reader.fields():
        start = reader.position
        reader.skip(kind)
        if number == 2:
            return reader.between(start)
    raise AssertionError("every footer has a schema")
