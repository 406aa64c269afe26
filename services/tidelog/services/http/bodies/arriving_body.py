"""Collects the pieces of an arriving body in one buffer of the size that Content-Length states.

Joining the pieces at the end would take the memory of the body twice. It would also fragment the heap: megabytes freed
in small pieces, between the pieces of other bodies, leave holes that malloc keeps. At full load that was half of the
heap.
"""

from __future__ import annotations

import pyarrow as pa

from tidelog.storage.object_store import Body
from tidelog.wire.errors import Unreadable


class ArrivingBody:
    """`size_bytes`: the size of the body. Memory is used only as the buffer fills. If the size is None, it is not
    known, and the pieces are joined at the end."""

    def __init__(self, size_bytes: int | None) -> None:
        self._buffer = None if size_bytes is None else memoryview(pa.allocate_buffer(size_bytes)).cast("B")
        self._filled_bytes = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> Body:
        """Keep `piece`. Returns the kept copy. Raises `Unreadable` if the body exceeds its size."""
        if self._buffer is None:
            self._pieces.append(piece)
            return piece
        end = self._filled_bytes + len(piece)
        if end > len(self._buffer):
            raise Unreadable("the body is longer than its Content-Length says")
        kept = self._buffer[self._filled_bytes : end]
        kept[:] = piece
        self._filled_bytes = end
        return kept.toreadonly()

    @property
    def rest(self) -> memoryview | None:
        """The part of the buffer that is not filled; None without a buffer. A caller that fills some of it calls
        `arrived`."""
        return None if self._buffer is None else self._buffer[self._filled_bytes :]

    def arrived(self, size_bytes: int) -> None:
        """`size_bytes` more of the buffer were filled."""
        self._filled_bytes += size_bytes

    def whole(self) -> Body:
        """The body so far."""
        if self._buffer is None:
            return b"".join(self._pieces)
        return self._buffer[: self._filled_bytes].toreadonly()
