"""Records of many partitions in one Arrow stream, as the answers to fetches of many partitions have them.

    placed(parts)        the batches of the stream, of the records of each partition     (brokers)
    by_partition(batch)  the records of each partition in a batch of the stream          (peers, client)

The rows of a partition are contiguous within a stream. Large batches are sent as they are, without a copy. Small ones,
also of different partitions, are joined, because each batch costs some microseconds on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.storage.records import RECORD_SCHEMA

PART_RECORD_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""Records with their topic and partition."""
JOINED_BYTES_MAX = 1 << 16
"""Smaller batches are joined up to this size."""


@dataclass(frozen=True)
class PartRecords:
    """Records (`RECORD_SCHEMA`) of one partition."""

    topic: str
    partition: int
    batches: Sequence[pa.RecordBatch]


def placed(parts: Sequence[PartRecords]) -> list[pa.RecordBatch]:
    """The batches (`PART_RECORD_SCHEMA`) of all of `parts`, in their order. All have one dictionary of topics."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(part.topic for part in parts))}
    dictionary = pa.array(list(numbers), pa.string())
    joined: list[pa.RecordBatch] = []
    group: list[tuple[int, int, pa.RecordBatch]] = []
    group_bytes = 0
    for part in parts:
        for batch in part.batches:
            if not batch.num_rows:
                continue
            size_bytes = batch.nbytes
            if group and group_bytes + size_bytes > JOINED_BYTES_MAX:
                joined.append(_joined(group, dictionary))
                group, group_bytes = [], 0
            group.append((numbers[part.topic], part.partition, batch))
            group_bytes += size_bytes
    if group:
        joined.append(_joined(group, dictionary))
    return joined


def by_partition(batch: pa.RecordBatch) -> Iterator[PartRecords]:
    """The records of each partition in `batch` (`PART_RECORD_SCHEMA`), in its order. No record is copied."""
    if not batch.num_rows:
        return
    topics: Any = batch.column("topic")
    numbers, partitions = topics.indices.to_numpy(), batch.column("partition").to_numpy()
    changes = np.flatnonzero((numbers[1:] != numbers[:-1]) | (partitions[1:] != partitions[:-1])) + 1
    starts = [0, *changes.tolist()]
    records = pa.RecordBatch.from_arrays([batch.column(name) for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        name = str(topics.dictionary[int(numbers[start])])
        yield PartRecords(name, int(partitions[start]), [records.slice(start, end - start)])


def _joined(group: Sequence[tuple[int, int, pa.RecordBatch]], dictionary: pa.Array[Any]) -> pa.RecordBatch:
    """One batch of all of `group`: number of the topic, partition, records."""
    records = group[0][2]
    if len(group) > 1:
        records = (
            pa.Table.from_batches([batch for _, _, batch in group], RECORD_SCHEMA).combine_chunks().to_batches()[0]
        )
    counts = [batch.num_rows for _, _, batch in group]
    numbers = np.repeat(np.array([number for number, _, _ in group], np.int32), counts)
    partitions = np.repeat(np.array([partition for _, partition, _ in group], np.int32), counts)
    indices: Any = pa.array(numbers)
    topics = pa.DictionaryArray.from_arrays(indices, dictionary)
    columns: list[pa.Array[Any]] = [topics, pa.array(partitions), *records.columns]
    return pa.RecordBatch.from_arrays(columns, schema=PART_RECORD_SCHEMA)
