"""Compressed input is expanded, and damage to it is reported."""

from __future__ import annotations

import gzip
import os
import threading

import pyarrow as pa
import pytest

from tidelog.services.cli.input_lines import BLOCK_BYTES, input_blocks
from tidelog.storage.errors import Invalid

DATA = os.urandom(100_000) + bytes(3_000_000) + b"the end\n"
GZIP = gzip.compress(DATA, 1)
ZSTD: bytes = pa.compress(DATA, codec="zstd", asbytes=True)


def read(raw: bytes, *, decompress: bool = True) -> tuple[bytes, int]:
    """Write `raw` to a pipe; return the expanded bytes and how many bytes were read from the pipe."""
    ours, theirs = os.pipe()

    def write() -> None:
        with os.fdopen(theirs, "wb") as pipe:
            pipe.write(raw)

    writing = threading.Thread(target=write)
    writing.start()
    counts: list[int] = []
    try:
        with os.fdopen(ours, "rb") as pipe:
            blocks = list(input_blocks(pipe.fileno(), counts.append, decompress=decompress))
            while pipe.read(1 << 20):
                pass
    finally:
        writing.join()
    assert all(len(block) <= BLOCK_BYTES for block in blocks)
    return b"".join(blocks), sum(counts)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        (GZIP, DATA),
        (GZIP + GZIP + bytes(512), DATA + DATA),
        (ZSTD, DATA),
        (ZSTD + ZSTD, DATA + DATA),
        (gzip.compress(b""), b""),
        (b"", b""),
        (b"\x1f", b"\x1f"),
        (b"(\xb5 text\n", b"(\xb5 text\n"),
    ],
    ids=["gzip", "two-members", "zstd", "two-frames", "empty-gzip", "empty", "one-byte", "text"],
)
def test_input_is_what_it_was_compressed_from(raw: bytes, plain: bytes) -> None:
    assert read(raw) == (plain, len(raw))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (GZIP[:-5], "cut off"),
        (GZIP[:1_000], "cut off"),
        (GZIP[:-8] + bytes(8), "damaged"),
        (ZSTD[:-5], "cut off"),
        (ZSTD[:20] + bytes(1_000), "damaged"),
    ],
)
def test_damaged_input_is_reported(raw: bytes, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        read(raw)


def test_bytes_stay_as_they_are_where_that_is_asked_for() -> None:
    assert read(GZIP, decompress=False) == (GZIP, len(GZIP))
