"""The bytes of stdin or a file in blocks, in bounded memory. Input that is gzip or zstd is decompressed on the way.

The first bytes tell what it is: both formats begin with bytes that no text begins with.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa

from tidelog.storage.errors import Invalid

BLOCK_BYTES = 1 << 20
GZIP, ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW = 31
"""zlib's number for a gzip header and the largest window."""

Blocks = Iterator[bytes]


def input_blocks(descriptor: int, on_read: Callable[[int], None], *, decompress: bool = True) -> Blocks:
    """Blocks until the end. `on_read` is told how many bytes were read, before decompression. Raises `Invalid` for
    compressed input that is damaged or ends too early."""
    raw = _raw_blocks(descriptor, on_read)
    if not decompress:
        return raw
    start = b""
    while any(len(start) < len(magic) and magic.startswith(start) for magic in (GZIP, ZSTD)):
        block = next(raw, b"")
        if not block:
            break
        start += block
    everything = _behind(start, raw)
    if start.startswith(GZIP):
        return _gunzipped(everything)
    return _unzstd(everything) if start.startswith(ZSTD) else everything


def _raw_blocks(descriptor: int, on_read: Callable[[int], None]) -> Blocks:
    while block := os.read(descriptor, BLOCK_BYTES):
        on_read(len(block))
        yield block


def _behind(start: bytes, blocks: Blocks) -> Blocks:
    if start:
        yield start
    yield from blocks


def _gunzipped(blocks: Blocks) -> Blocks:
    """Members behind each other are one input, as gzip has it; zeros may fill up the end."""
    member, within = zlib.decompressobj(_GZIP_WINDOW), True
    try:
        for block in blocks:
            while block := block if within else block.lstrip(b"\0"):
                if not within:
                    member, within = zlib.decompressobj(_GZIP_WINDOW), True
                if plain := member.decompress(block, BLOCK_BYTES):
                    yield plain
                within = not member.eof
                block = member.unconsumed_tail if within else member.unused_data
        if within:
            yield member.flush()
    except zlib.error as error:
        raise Invalid(f"the gzip input is damaged: {error}", field="file") from error
    if within and not member.eof:
        raise Invalid("the gzip input ends too early: it was cut off", field="file")


def _unzstd(blocks: Blocks) -> Blocks:
    try:
        with pa.CompressedInputStream(pa.PythonFile(cast(Any, _Readable(blocks)), "r"), "zstd") as stream:
            while plain := stream.read(BLOCK_BYTES):
                yield plain
    except OSError as error:
        raise Invalid(f"the zstd input is damaged or cut off: {error}", field="file") from error


class _Readable:
    """Blocks as the file that Arrow reads."""

    closed = False

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._left = b""

    def read(self, size: int) -> bytes:
        block = self._left or next(self._blocks, b"")
        self._left = block[size:]
        return block[:size]

    def close(self) -> None:
        """Its descriptor is another's."""
