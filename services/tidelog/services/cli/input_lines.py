"""Reads stdin or a file as lines, in bounded memory, for `tidelog topic produce`.

- `input_blocks` reads blocks of bytes. It decompresses gzip and zstd: both begin with bytes that no text begins with.
- `line_arrays` cuts blocks into records. The bytes before each newline are a record; so are the bytes after the last
  newline, if there are any. numpy finds the newlines, and the lines of a block become one Arrow array, so that no
  Python code runs per line unless keys are wanted.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from tidelog.storage.errors import Invalid, TooLarge

BLOCK_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20
"""Bounds the bytes that are kept while looking for a newline. No broker takes a record of this size."""

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW = 31
"""zlib's number for a gzip header and the largest window."""

Blocks = Iterator[bytes]
Lines: TypeAlias = "pa.Array[Any]"


def input_blocks(descriptor: int, on_read: Callable[[int], None], *, decompress: bool = True) -> Blocks:
    """Blocks until the end of the input. Calls `on_read` with the number of bytes read, before decompression. Raises
    `Invalid` for compressed input that is damaged or cut off."""
    raw = _raw_blocks(descriptor, on_read)
    if not decompress:
        return raw
    start = b""
    while any(len(start) < len(magic) and magic.startswith(start) for magic in (_GZIP, _ZSTD)):
        block = next(raw, b"")
        if not block:
            break
        start += block
    everything = _behind(start, raw)
    if start.startswith(_GZIP):
        return _gunzipped(everything)
    return _unzstd(everything) if start.startswith(_ZSTD) else everything


def line_arrays(blocks: Blocks) -> Iterator[Lines]:
    """Arrays of lines (binary). Raises `TooLarge` for a line longer than `LINE_BYTES_MAX`."""
    started: list[bytes] = []  # the pieces of a line whose newline has not come yet
    started_bytes = 0
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if not end:
            started.append(block)
            started_bytes += len(block)
            if started_bytes > LINE_BYTES_MAX:
                raise TooLarge(
                    f"a line is longer than {LINE_BYTES_MAX} bytes: is the input text?",
                    limit_name="line",
                    limit_bytes=LINE_BYTES_MAX,
                )
            continue
        yield _lines(b"".join([*started, block[:end]]))
        started = [block[end:]] if end < len(block) else []
        started_bytes = len(block) - end
    if started:
        yield pa.array([b"".join(started)], pa.binary())


def _lines(data: bytes) -> Lines:
    """The lines of `data`, which ends with a newline, as slices of one copy without the newlines."""
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == 10)
    starts = np.concatenate(([0], ends[:-1] + 1))
    kept = np.delete(characters, ends) if len(ends) else characters
    offsets = np.concatenate(([0], np.cumsum(ends - starts))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(kept.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _raw_blocks(descriptor: int, on_read: Callable[[int], None]) -> Blocks:
    while block := os.read(descriptor, BLOCK_BYTES):
        on_read(len(block))
        yield block


def _behind(start: bytes, blocks: Blocks) -> Blocks:
    if start:
        yield start
    yield from blocks


def _gunzipped(blocks: Blocks) -> Blocks:
    """As in gzip, several members are one input, and zeros may follow the last one."""
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
        if within and (rest := member.flush()):
            yield rest
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
    """Blocks as a file object for Arrow."""

    closed = False

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._left = b""

    def read(self, size: int) -> bytes:
        block = self._left or next(self._blocks, b"")
        self._left = block[size:]
        return block[:size]

    def close(self) -> None:
        """Nothing to close: the descriptor belongs to the caller."""
