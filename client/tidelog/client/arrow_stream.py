"""Arrow IPC streams as bodies: what the producer sends, and what the consumer asks for and gets.

Buffers are compressed by default (ADR 0026): JSON events shrink to an eighth. The reader needs to be told nothing,
because the stream names its codec itself. A client asks for compressed answers with the ``codecs`` parameter of Accept.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import pyarrow as pa

from tidelog.storage.errors import Invalid

ARROW = "application/vnd.apache.arrow.stream"
COMPRESSED_BYTES_MIN = 1 << 10
"""Fewer bytes are sent as they are: compression would save no packet."""

Compression: TypeAlias = Literal["zstd", "lz4", "none"]
"""How Arrow buffers travel. zstd halves the bytes of lz4 for about the same time."""

_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_COMPRESSED = {codec: pa.ipc.IpcWriteOptions(use_threads=False, compression=codec) for codec in ("zstd", "lz4")}


def checked_compression(compression: str) -> None:
    """Raises `Invalid` if `compression` is not one of `Compression`."""
    if compression not in get_args(Compression):
        raise Invalid(f"compression is zstd, lz4 or none, not {compression!r}", field="compression")


def accepting(compression: Compression) -> str:
    """The Accept header of a fetch whose answer may be compressed."""
    return ARROW if compression == "none" else f"{ARROW}; codecs={compression}"


def arrow_body(records: pa.Table, compression: Compression) -> Sequence[memoryview]:
    """`records` as an Arrow IPC stream. Without compression, its pieces are views of the columns' memory."""
    pieces = _Pieces()
    plain = compression == "none" or records.nbytes < COMPRESSED_BYTES_MIN
    options = _PLAIN if plain else _COMPRESSED[compression]
    with pa.ipc.new_stream(cast(Any, pieces), records.schema, options=options) as writer:
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
