"""The footer of a Parquet file that is made of stored column chunks, or of some pages of them, to be decoded.

Such a file has no statistics, indexes or checksums of Tidelog's: its footer has the few numbers that a reader needs to
decode. pyarrow reads whole column chunks only, so a reader of single pages gets them as chunks of such a file.
`row_group_copy` makes objects of the bucket instead: it keeps the statistics, for which it needs the source's footer as
bytes.

Source of the field numbers and of the numbers below: ``parquet.thrift`` of the Apache Parquet format.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.storage.parquet.parquet_format import MAGIC, TAIL_BYTES
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


def made_footer(schema: pa.Schema, rows: int, groups: Sequence[Struct]) -> bytes:
    """The footer of a file with `groups`, in Thrift, and the end of the file. All have the columns of `schema`."""
    fields: dict[int, Written] = {
        1: I32(_FORMAT_VERSION),
        2: Encoded(_schema(schema), LIST),
        3: I64(rows),
        4: Listed(groups),
    }
    footer = write_struct(Struct(fields))
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def made_file(schema: pa.Schema, rows: int, groups: Sequence[Struct], data: memoryview) -> pq.ParquetFile:
    """A file with `groups`, in Thrift, whose column chunks are in `data`."""
    metadata = pq.read_metadata(pa.BufferReader(made_footer(schema, rows, groups)))
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), metadata=metadata, pre_buffer=False)


def whole_chunk(chunk: pq.ColumnChunkMetaData, moved_by: int) -> Struct:
    """`chunk` in Thrift, `moved_by` bytes further on than in its object."""
    positions = [chunk.data_page_offset + moved_by]
    if chunk.dictionary_page_offset is not None:
        positions.append(chunk.dictionary_page_offset + moved_by)
    return _chunk(chunk, (chunk.num_values, chunk.total_uncompressed_size, chunk.total_compressed_size, *positions))


def part_of_chunk(chunk: pq.ColumnChunkMetaData, rows: int, raw_bytes: int, start: int, end: int) -> Struct:
    """The pages of `chunk` at bytes ``[start, end)`` of the file, in Thrift. It has no dictionary, and no lists."""
    return _chunk(chunk, (rows, raw_bytes, end - start, start))


def _chunk(chunk: pq.ColumnChunkMetaData, numbers: Sequence[int]) -> Struct:
    kind = _kind(chunk.physical_type, chunk.encodings, chunk.path_in_schema, chunk.compression)
    written = b"".join(map(bytes.__add__, _NUMBER_HEADS, map(written_number, numbers)))
    return Struct({2: I64(0), 3: Encoded(kind + written + b"\0", STRUCT)})


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
