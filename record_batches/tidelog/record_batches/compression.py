"""Compresses and decompresses the records of a batch, by pyarrow's codecs.

The size of decompressed records is not part of a batch, so each codec is read as a stream up to a bound. Snappy has two
forms: a raw block, which begins with its size, and the blocks of the Java client (Xerial's frame).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from tidelog.record_batches.batch_header import Codec
from tidelog.record_batches.errors import CorruptBatch, TooLargeBatch

_STREAMS: dict[Codec, Literal["gzip", "lz4", "zstd"]] = {Codec.GZIP: "gzip", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = len(_XERIAL_MAGIC) + 8
"""After the magic come the version and the lowest compatible version."""
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_SIZE_BYTES_MAX = 5
_BLOCK_BYTES = 32 << 10
"""Of Xerial's frame, as the Java client writes it."""


def decompressed(codec: Codec, data: pa.Buffer, bytes_max: int) -> pa.Buffer:
    """The records in `data`. Raises `CorruptBatch`, and `TooLargeBatch` beyond `bytes_max`."""
    try:
        if codec is Codec.NONE:
            return data
        found = _unsnapped(data, bytes_max) if codec is Codec.SNAPPY else _streamed(codec, data, bytes_max)
    except (pa.ArrowException, OSError, struct.error) as error:
        raise CorruptBatch(f"the records are not valid {codec.name.lower()}: {error}") from error
    return _bounded(found, bytes_max)


def compressed(codec: Codec, data: pa.Buffer) -> pa.Buffer:
    """`data`, compressed so that every client reads it."""
    if codec is Codec.NONE:
        return data
    if codec is Codec.SNAPPY:
        return _snapped(data)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, _STREAMS[codec]) as stream:
        stream.write(data)
    return sink.getvalue()


def _streamed(codec: Codec, data: pa.Buffer, bytes_max: int) -> pa.Buffer:
    with pa.CompressedInputStream(pa.BufferReader(data), _STREAMS[codec]) as stream:
        return stream.read_buffer(bytes_max + 1)


def _unsnapped(data: pa.Buffer, bytes_max: int) -> pa.Buffer:
    blocks = list(_xerial_blocks(data)) if _has_frame(data) else [data]
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > bytes_max:
        raise TooLargeBatch(sum(sizes), bytes_max)
    pieces = [pa.decompress(block, size, "snappy") for block, size in zip(blocks, sizes, strict=True)]
    return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))


def _has_frame(data: pa.Buffer) -> bool:
    return _first(data, len(_XERIAL_MAGIC)) == _XERIAL_MAGIC


def _first(data: pa.Buffer, size: int) -> bytes:
    return data.slice(0, min(size, data.size)).to_pybytes()


def _xerial_blocks(data: pa.Buffer) -> Iterator[pa.Buffer]:
    at = _XERIAL_HEADER_BYTES
    while at < data.size:
        (size,) = struct.unpack_from(">i", data, at)
        if not 0 <= size <= data.size - at - 4:
            raise CorruptBatch(f"a block of snappy has {size} bytes, but {data.size - at - 4} follow")
        yield data.slice(at + 4, size)
        at += 4 + size


def _snappy_size(block: pa.Buffer) -> int:
    size = 0
    for at, byte in enumerate(_first(block, _SNAPPY_SIZE_BYTES_MAX)):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return size
    raise CorruptBatch("a block of snappy does not begin with its size")


def _snapped(data: pa.Buffer) -> pa.Buffer:
    pieces = [_XERIAL_HEADER]
    for at in range(0, data.size, _BLOCK_BYTES):
        block = pa.compress(data.slice(at, min(_BLOCK_BYTES, data.size - at)), "snappy", asbytes=True)
        pieces += [struct.pack(">i", len(block)), block]
    return pa.py_buffer(b"".join(pieces))


def _bounded(found: pa.Buffer, bytes_max: int) -> pa.Buffer:
    if found.size > bytes_max:
        raise TooLargeBatch(found.size, bytes_max)
    return found
