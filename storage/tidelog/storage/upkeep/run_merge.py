"""The order of a merge: of sorted runs, the rows by partition, and within a partition run after run.

    merge = RunMerge(runs=8)
    while (run := merge.wanted) is not None:        # the run whose next rows are needed to go on
        merge.feed(run, records)                    # STORED_SCHEMA, or as stored; None after its last rows
        for partition, rows, size in merge.take():  # pieces in order, as far as the rows at hand go
            ...

Each run is sorted by (partition, offset), and for every partition a later run has later offsets. So the result is
sorted by (partition, offset), without a comparison of records: a piece is a slice of what was fed. Pure; it holds what
was fed last of each run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidelog.storage.parquet.parquet_format import RowGroup
from tidelog.storage.parquet.row_group_copy import CopySource
from tidelog.storage.segments.topic_segment import partition_bounds


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one partition as they are stored: row group `group` of `source`, with the bytes `data`."""

    source: CopySource
    group: RowGroup
    data: memoryview

    @property
    def num_rows(self) -> int:
        return self.group.rows

    @property
    def piece(self) -> Piece:
        return partition_bounds(self.group)[0], self, self.group.raw_bytes


Piece = tuple[int, pa.RecordBatch | StoredRows, int]
"""A partition, rows of it that are neighbours in their run, and how many bytes they take, about."""


class RunMerge:
    """Merges `runs` runs, numbered from 0 in the order of the log."""

    def __init__(self, runs: int) -> None:
        self._unfed = deque(range(runs))
        self._pieces: list[deque[Piece]] = [deque() for _ in range(runs)]
        self._next: list[tuple[int, int]] = []
        """A heap of (partition, run), one for each run with rows at hand."""

    @property
    def wanted(self) -> int | None:
        """The run that is fed next; None at the end."""
        return self._unfed[0] if self._unfed else None

    def feed(self, run: int, records: pa.Table | StoredRows | None) -> None:
        """The next rows of `run`, which is `wanted`. None: it has no more."""
        assert run == self._unfed[0], f"run {run} is not wanted"
        if records is not None and not records.num_rows:
            return
        self._unfed.popleft()
        if records is not None:
            self._pieces[run].extend([records.piece] if isinstance(records, StoredRows) else pieces_of(records))
            heappush(self._next, (self._pieces[run][0][0], run))

    def take(self) -> Iterator[Piece]:
        """The next pieces, until a run has no rows at hand."""
        while not self._unfed and self._next:
            _, run = heappop(self._next)
            pieces = self._pieces[run]
            yield pieces.popleft()
            if pieces:
                heappush(self._next, (pieces[0][0], run))
            else:
                self._unfed.append(run)


def pieces_of(records: pa.Table) -> Iterator[tuple[int, pa.RecordBatch, int]]:
    """`records`, sorted by partition, cut where a partition ends; nothing is copied."""
    for batch in records.to_batches():
        partitions = batch.column(0).to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
        row_bytes = batch.nbytes / max(1, batch.num_rows)  # to measure each slice costs more than to write it
        for first, end in pairwise(edges):
            if end > first:
                yield int(partitions[first]), batch.slice(first, end - first), int((end - first) * row_bytes)
