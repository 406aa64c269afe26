"""Limits the records and bytes of a fetch, and cuts batches to these limits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelog.services.broker.shard.record_columns import payload_bytes, payload_bytes_total
from tidelog.storage.records import RECORD_SCHEMA

BATCHES_MAX = 64
"""More batches than this are copied into one, which is cheaper than to encode each."""

FILLED_PART = 4
"""An answer is well filled at this fraction of its limits."""


class ReadBudget:
    """Collects batches until `records_max` or `bytes_max` (of keys and values) is reached; one record always fits."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self.records_left = max(1, records_max)
        self.bytes_left = bytes_max
        self._records_filled, self._bytes_filled = self.records_left // FILLED_PART, bytes_max // FILLED_PART
        self._batches: list[pa.RecordBatch] = []
        self.payload_bytes = 0
        self.spent = False

    def take(self, records: pa.Table) -> None:
        """Take as many of `records` (`RECORD_SCHEMA`) as fit; `spent` is set when a limit is reached."""
        if self._take_whole(records):
            return
        for batch in records.to_batches():
            if self.spent:
                return
            if batch.num_rows:
                self._take(batch)

    @property
    def well_filled(self) -> bool:
        """Whether the answer is large enough not to wait for more."""
        return self.records > 0 and (self.payload_bytes >= self._bytes_filled or self.records >= self._records_filled)

    @property
    def next_offset(self) -> int | None:
        """The offset after the last record taken, None if there is none."""
        return self._batches[-1].column("offset")[-1].as_py() + 1 if self._batches else None

    def batches(self) -> list[pa.RecordBatch]:
        if len(self._batches) <= BATCHES_MAX:
            return self._batches
        return pa.Table.from_batches(self._batches, RECORD_SCHEMA).combine_chunks().to_batches()

    @property
    def records(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def _take_whole(self, records: pa.Table) -> bool:
        """Take all of `records` if they fit: the common case, whose cost does not depend on the number of batches."""
        if self.spent or not 0 < records.num_rows < self.records_left:
            return False
        size_bytes = payload_bytes_total(records)
        if size_bytes >= self.bytes_left:
            return False
        self._batches.extend(records.to_batches())
        self.records_left -= records.num_rows
        self.bytes_left -= size_bytes
        self.payload_bytes += size_bytes
        return True

    def _take(self, batch: pa.RecordBatch) -> None:
        """Compute the sizes of at most `records_left` rows, since a batch may have far more."""
        rows = batch.slice(0, self.records_left)
        sizes = np.cumsum(payload_bytes(rows))
        fitting = int(np.searchsorted(sizes, self.bytes_left, side="right"))
        count = min(max(fitting, 0 if self._batches else 1), rows.num_rows)
        self.spent = count < batch.num_rows
        if not count:
            return
        self._batches.append(rows.slice(0, count))
        self.records_left -= count
        self.bytes_left -= int(sizes[count - 1])
        self.payload_bytes += int(sizes[count - 1])
        self.spent = self.spent or self.records_left <= 0 or self.bytes_left <= 0
