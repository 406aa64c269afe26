"""A set of row numbers, one bit each: the records that a compaction removes. A thousand million take 120 MiB."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


class RowSet:
    """A subset of rows 0 to `rows` - 1."""

    def __init__(self, rows: int) -> None:
        self._bits = np.zeros(-(-rows // 8), np.uint8)

    def add(self, rows: Rows) -> None:
        np.bitwise_or.at(self._bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))

    def mask(self, first_row: int, end_row: int) -> npt.NDArray[np.bool_]:
        """Which of ``[first_row, end_row)`` are in it."""
        bits = np.unpackbits(self._bits[first_row >> 3 : -(-end_row // 8)], bitorder="little")
        return bits[first_row & 7 :][: end_row - first_row].view(np.bool_)

    def count(self, first_row: int, end_row: int) -> int:
        """How many of ``[first_row, end_row)`` are in it."""
        return int(np.count_nonzero(self.mask(first_row, end_row)))
