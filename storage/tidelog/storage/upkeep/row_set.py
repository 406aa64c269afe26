"""Which rows of some segments are removed, one bit each. A thousand million take 120 MiB."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from tidelog.storage.manifests.shard_values import TopicSegment

Rows = npt.NDArray[np.int64]


class RowSet:
    """A subset of the rows of `segments`. A row is numbered by its place in all of them, in their order."""

    def __init__(self, segments: Sequence[TopicSegment]) -> None:
        *firsts, rows = accumulate((segment.records for segment in segments), initial=0)
        self._firsts = {segment.key: first for segment, first in zip(segments, firsts, strict=True)}
        self._bits = np.zeros(-(-rows // 8), np.uint8)

    def first_row(self, segment: TopicSegment) -> int:
        """The number of the first row of `segment`."""
        return self._firsts[segment.key]

    def add(self, rows: Rows) -> None:
        np.bitwise_or.at(self._bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))

    def mask(self, segment: TopicSegment, first: int, end: int) -> npt.NDArray[np.bool_]:
        """Which of the rows ``[first, end)`` of `segment` are in it."""
        begin = self._firsts[segment.key] + first
        bits = np.unpackbits(self._bits[begin >> 3 : -(-(begin + end - first) // 8)], bitorder="little")
        return bits[begin & 7 :][: end - first].view(np.bool_)

    def count(self, segment: TopicSegment, first: int = 0, end: int | None = None) -> int:
        """How many of the rows ``[first, end)`` of `segment` are in it; None: to its end."""
        return int(np.count_nonzero(self.mask(segment, first, segment.records if end is None else end)))
