"""Decodes stored row groups that a broker hands out as they are (`tidelog.wire.polls.STORED_MEDIA`).

The broker spends next to no CPU time on such an answer, and Arrow decodes it here without the interpreter's lock, in
the thread that fetched it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.client.consumed import TopicPartition, rows_before
from tidelog.storage.records import RECORD_SCHEMA, TIMESTAMP
from tidelog.wire.polls import PartsAnswer

KEPT_PART = 2
"""Less than this fraction (one in 2) of the rows is copied."""


def stored_rows(file: pa.Buffer, answer: PartsAnswer) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """The records (`RECORD_SCHEMA`) of each partition of `answer` that has some in `file`. Raises `pa.ArrowException`,
    `OSError`."""
    first = 0
    with pq.ParquetFile(pa.BufferReader(file)) as parquet:
        for part in answer.partitions:
            if part.stored is None:
                continue
            groups = list(range(first, first + part.stored.row_groups))
            first += part.stored.row_groups
            rows = parquet.read_row_groups(groups, columns=RECORD_SCHEMA.names, use_threads=False)
            yield TopicPartition(part.topic, part.partition), _records(rows, part.stored.offset)


def _records(rows: pa.Table, offset: int) -> pa.Table:
    """`rows` from `offset` on, in the columns and types that programs get. A few of many are copied, because they would
    keep the memory of all."""
    columns = [rows.column(name) for name in RECORD_SCHEMA.names]
    place = RECORD_SCHEMA.get_field_index("timestamp")
    columns[place] = columns[place].cast(TIMESTAMP)
    records = pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)
    wanted = records.slice(rows_before(records, offset))
    if wanted.num_rows * KEPT_PART < records.num_rows:
        return wanted.take(np.arange(wanted.num_rows))
    return wanted
