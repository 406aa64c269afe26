"""The rows of a batch, for runs with the real codec."""

from __future__ import annotations

import pyarrow as pa
from tests.simulation.batches import Placed

from tidelog.storage.records import WAL_SCHEMA


def parquet_rows(placed: Placed) -> pa.Table:
    """One row per record; the value names the batch."""
    batch, count = placed.batch, placed.batch.count
    value = f"{batch.producer} {batch.sequence}".encode()
    columns = {
        "partition": [batch.partition] * count,
        "offset": list(range(placed.base_offset, placed.next_offset)),
        "timestamp": [0] * count,
        "key": [None] * count,
        "value": [value] * count,
        "headers": [None] * count,
    }
    return pa.table(columns, schema=WAL_SCHEMA)
