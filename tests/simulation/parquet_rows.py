"""The rows of a batch, as a WAL entry holds them."""

from __future__ import annotations

import pyarrow as pa
from tests.simulation.batches import Placed

from tidelog.storage.records import WAL_SCHEMA


def parquet_rows(placed: Placed) -> pa.Table:
    """One row per record."""
    batch, count = placed.batch, placed.batch.count
    columns = {
        "partition": [batch.partition] * count,
        "offset": list(range(placed.base_offset, placed.next_offset)),
        "timestamp": [0] * count,
        "key": [None] * count,
        "value": [batch.value] * count,
        "headers": [None] * count,
    }
    return pa.table(columns, schema=WAL_SCHEMA)
