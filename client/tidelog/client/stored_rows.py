"""Decodes stored row groups that a broker hands out as they are (`tidelog.wire.polls.STORED_MEDIA`).

The broker spends next to no CPU time on such an answer, and Arrow decodes it here without the interpreter's lock, in
the thread that fetched it.

`ParquetReader` is what `pyarrow.parquet.ParquetFile` reads with. It is used directly because `pyarrow.parquet` imports
pandas if it is installed, which takes half a second of a program's first poll.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow._parquet import ParquetReader

from tidelog.client.consumed import TopicPartition, rows_before
from tidelog.storage.records import RECORD_SCHEMA, TIMESTAMP
from tidelog.wire.polls import PartsAnswer

KEPT_PART = 2
"""Less than this fraction (one in 2) of the rows is copied."""
_LEAVES = [1, 2, 3, 4, 5, 6]
"""The columns of `RECORD_SCHEMA` among those of `STORED_SCHEMA`, as Parquet counts them: headers are two."""


def stored_rows(file: pa.Buffer, answer: PartsAnswer) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """The records (`RECORD_SCHEMA`) of each partition of `answer` that has some in `file`. Raises `pa.ArrowException`,
    `OSError`, and others for bytes that are not Parquet."""
    reader, first = ParquetReader(), 0
    reader.open(pa.BufferReader(file))
    for part in answer.partitions:
        if part.stored is None:
            continue
        groups = list(range(first, first + part.stored.row_groups))
        first += part.stored.row_groups
        rows = reader.read_row_groups(groups, column_indices=_LEAVES, use_threads=False)
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
        return _copied(wanted)
    return wanted


def _copied(records: pa.Table) -> pa.Table:
    """As messages, because Arrow's `take` imports pandas as well."""
    batches = (pa.ipc.read_record_batch(batch.serialize(), RECORD_SCHEMA) for batch in records.to_batches())
    return pa.Table.from_batches(batches, RECORD_SCHEMA)
