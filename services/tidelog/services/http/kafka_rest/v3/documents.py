"""Cuts a stream of JSON objects into objects as their bytes arrive: one per line, over several lines, or without any
white space between them.

Brackets and quotes are counted block by block; an object ends where the count is back at zero. Whether it is JSON is
for the parser to say.
"""

from __future__ import annotations

import numpy as np

from tidelog.services.http.bodies.json_pieces import CLOSE, OPEN, QUOTE, marks
from tidelog.storage.errors import TooLarge
from tidelog.wire.errors import Unreadable


class Documents:
    """`size_max`: the bytes of one object."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._pending = b""
        self._depth = 0
        self._in_text = False
        self._escaped = False

    def add(self, piece: bytes) -> list[bytes]:
        """The objects that `piece` completes. Raises `TooLarge`, and `Unreadable` if a bracket closes none."""
        before = len(self._pending)
        data = self._pending + piece
        cuts = [before + end for end in self._ends(np.frombuffer(piece, np.uint8))]
        starts = [0, *cuts]
        self._pending = data[starts[-1] :]
        if len(self._pending) > self._size_max:
            raise TooLarge(
                f"a record takes more than {self._size_max} bytes (request.max.bytes)",
                limit_name="request.max.bytes",
                limit_bytes=self._size_max,
            )
        return [data[start:end] for start, end in zip(starts, cuts, strict=False)]

    def finish(self) -> None:
        """Raises `Unreadable` if the stream ends within an object."""
        if self._pending.strip():
            raise Unreadable("the body ends within a record")

    def _ends(self, block: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> list[int]:
        places, kinds, self._escaped = marks(block, escaped=self._escaped)
        if not len(places):
            return []
        texts = (np.cumsum(kinds == QUOTE) + self._in_text) % 2 == 1
        steps = np.where(texts, 0, (kinds == OPEN).astype(np.int64) - (kinds == CLOSE))
        depths = np.cumsum(steps) + self._depth
        if (depths < 0).any():
            raise Unreadable("a closing bracket has no opening one")
        self._depth, self._in_text = int(depths[-1]), bool(texts[-1])
        ends: list[int] = (places[(steps == -1) & (depths == 0)] + 1).tolist()
        return ends
