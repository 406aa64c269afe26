"""A body of lines cut into pieces of whole lines, so that only the lines of one piece are objects at one time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tidelog.storage.object_store import Body

PIECE_BYTES = 1 << 16
COUNTED_BYTES = 1 << 18
_NEWLINE = re.compile(rb"\n")


def line_pieces(body: Body) -> Iterator[bytes]:
    """`body` in pieces of about `PIECE_BYTES`; each but the last one ends with a newline."""
    if isinstance(body, bytes) and 0 < len(body) <= PIECE_BYTES:
        yield body
        return
    start = 0
    while start < len(body):
        newline = _NEWLINE.search(body, start + PIECE_BYTES - 1)
        end = newline.end() if newline else len(body)
        yield bytes(body[start:end])
        start = end


def count_bytes(body: Body, mark: bytes) -> int:
    """How often the byte `mark` is in `body`. numpy counts many times faster than `bytes.count` does."""
    number = 0
    for first in range(0, len(body), COUNTED_BYTES):
        block = np.frombuffer(body, np.uint8, min(COUNTED_BYTES, len(body) - first), first)
        number += int(np.count_nonzero(block == mark[0]))
    return number
