"""Arrow IPC streams as bodies: what the producer sends, and what the consumer asks for and gets.

Buffers are compressed by default (ADR 0026): JSON events shrink to a sixth. The reader needs no header,
because the stream names its codec itself. A client asks for compressed answers with the ``codecs`` parameter of Accept.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import pyarrow as pa

from tidelog.storage.errors import Invalid
from tidelog.wire.polls import STORED_MEDIA

ARROW = "application/vnd.apache.arrow.stream"
COMPRESSED_BYTES_MIN = 1 << 10
"""Fewer bytes are sent as they are: compression would save no packet."""

ZSTD_LEVEL = -1
"""A fast level: it costs little for data that does not shrink."""

Compression: TypeAlias = Literal["zstd", "lz4", "none"]
"""How Arrow buffers travel. zstd makes fewer bytes than lz4 in about the same time."""

_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_CODECS = {"zstd": pa.Codec("zstd", ZSTD_LEVEL), "lz4": pa.Codec("lz4")}
_COMPRESSED = {name: pa.ipc.IpcWriteOptions(use_threads=False, compression=codec) for name, codec in _CODECS.items()}


def checked_compression(compression: str) -> None:
    """Raises `Invalid` if `compression` is not one of `Compression`."""
    if compression not in get_args(Compression):
        raise Invalid(f"compression is zstd, lz4 or none, not {compression!r}", field="compression")


def accepting(compression: Compression, *, stored: bool) -> str:
    """The Accept header of a fetch whose answer may be compressed. `stored`: archived records may come as they are
    stored, which is compressed."""
    if compression == "none":
        return ARROW
    return f"{STORED_MEDIA}, {ARROW}; codecs={compression}; q=0.9" if stored else f"{ARROW}; codecs={compression}"


def arrow_body(records: pa.Table, compression: Compression) -> Sequence[memoryview]:
    """`records` as an Arrow IPC stream. Without compression, its pieces are views of the columns' memory. With it,
    Arrow writes to memory of its own, and takes the interpreter's lock only once."""
    if compression != "none" and records.nbytes >= COMPRESSED_BYTES_MIN:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, records.schema, options=_COMPRESSED[compression]) as writer:
            writer.write_table(records)
        return [memoryview(sink.getvalue()).cast("B")]
    pieces = _Pieces()
    with pa.ipc.new_stream(cast(Any, pieces), records.schema, options=_PLAIN) as writer:
        writer.write_table(records)
    return pieces.written


class _Pieces(io.RawIOBase):
    """A file that keeps each written piece without copying."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[memoryview] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        if piece.nbytes:
            self.written.append(piece)
        return piece.nbytes
