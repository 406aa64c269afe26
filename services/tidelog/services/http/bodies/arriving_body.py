"""A body of several pieces as it arrives: copied into one buffer of the size that its head tells.

Pieces that wait for the last one and are joined then take a body's memory twice. Worse, megabytes freed in small
pieces, each between those of other bodies, leave holes that malloc keeps: half of the heap at full load.
"""

from __future__ import annotations

import pyarrow as pa

from tidelog.services.http.answers.problems import Unreadable
from tidelog.storage.object_store import Body


class ArrivingBody:
    """`told_bytes`: how much will come, None if nobody knows. Memory is touched as it fills, not before."""

    def __init__(self, told_bytes: int | None) -> None:
        self._gathered: _OneBuffer | _Pieces = _Pieces() if told_bytes is None else _OneBuffer(told_bytes)

    def add(self, piece: bytes) -> Body:
        """Keep what `piece` holds, and return where it is kept. Raises `Unreadable` for more than was told."""
        return self._gathered.add(piece)

    def whole(self) -> Body:
        """All that was added."""
        return self._gathered.whole()


class _OneBuffer:
    def __init__(self, size_bytes: int) -> None:
        self._buffer = memoryview(pa.allocate_buffer(size_bytes)).cast("B")
        self._filled_bytes = 0

    def add(self, piece: bytes) -> Body:
        end = self._filled_bytes + len(piece)
        if end > len(self._buffer):
            raise Unreadable("the body is longer than its Content-Length says")
        kept = self._buffer[self._filled_bytes : end]
        kept[:] = piece
        self._filled_bytes = end
        return kept.toreadonly()

    def whole(self) -> Body:
        return self._buffer[: self._filled_bytes].toreadonly()


class _Pieces:
    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> Body:
        self._pieces.append(piece)
        return piece

    def whole(self) -> Body:
        return b"".join(self._pieces)
