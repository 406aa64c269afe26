"""Turns the rows of a task into staged objects: sorted by topic and partition, each range of them an Arrow stream.

An object holds some `OBJECT_BYTES` of rows. A range is what one produce appends later, at most `RANGE_BYTES` unless a
single row is larger. Ranges are whole Arrow streams one behind the other, so a broker reads and checks one like the
body of a produce. No single row is touched in Python.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark_connector.sinks.committed_batch import StagedPart
from tidelog.spark_connector.sinks.sink_columns import PAYLOAD, draft_columns, topics_of
from tidelog.spark_connector.sinks.sink_partitions import KnownTopics, check_rows, partitions_chosen
from tidelog.spark_connector.sinks.staging_area import Staging
from tidelog.storage.runtime import Entropy

OBJECT_BYTES = 32 << 20
RANGE_BYTES = 8 << 20
RANGE_RECORDS = 100_000


@dataclass(frozen=True)
class _Rows:
    """Rows of one topic with their partitions."""

    topic: str
    partitions: npt.NDArray[np.int32]
    columns: dict[str, pa.Array[Any]]

    @property
    def size_bytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())


class StagedRows:
    """The staged objects of one attempt of task `task`. Call `finish` once; an attempt that does not leaves garbage."""

    def __init__(
        self, staging: Staging, batch: int, task: int, topics: KnownTopics, entropy: Entropy, topic: str | None
    ) -> None:
        self._staging = staging
        self._batch = batch
        self._task = task
        self._topics = topics
        self._entropy = entropy
        self._topic = topic
        self._rows: list[_Rows] = []
        self._held_bytes = 0
        self._unkeyed = task
        self._parts: list[StagedPart] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of the task. Raises `Invalid`, `NotFound`, `Unavailable`."""
        if not batch.num_rows:
            return
        for topic, rows in _by_topic(batch, self._topic):
            columns = draft_columns(rows)
            rules = self._topics.rules(topic)
            check_rows(rules, columns)
            given: Any = rows.column("partition") if "partition" in rows.schema.names else None
            taken = _Rows(topic, partitions_chosen(rules, columns, given, self._unkeyed), columns)
            self._rows.append(taken)
            self._held_bytes += taken.size_bytes
        self._unkeyed += 1
        if self._held_bytes >= OBJECT_BYTES:
            self._write()

    def finish(self) -> tuple[StagedPart, ...]:
        """Write the rest, and return the parts in the order in which they are to be appended."""
        self._write()
        return tuple(self._parts)

    def _write(self) -> None:
        if not self._rows:
            return
        name = f"{self._task}-{self._entropy.new_id()}.arrow"
        data, parts = _object_of(name, self._rows)
        self._rows, self._held_bytes = [], 0
        self._staging.stage(self._batch, name, memoryview(data))
        self._parts += parts


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    topics = topics_of(batch, topic)
    names = topics.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    codes = topics.indices.to_numpy()
    for code, name in enumerate(names):
        yield name, _taken(batch, np.flatnonzero(codes == code))


def _object_of(name: str, rows: Sequence[_Rows]) -> tuple[pa.Buffer, list[StagedPart]]:
    """An object with all `rows`, and its parts."""
    sink, parts = pa.BufferOutputStream(), list[StagedPart]()
    spans: list[tuple[str, int, int, int, int]] = []
    for topic in dict.fromkeys(each.topic for each in rows):
        for partition, table in _ranges(_joined([each for each in rows if each.topic == topic])):
            start = sink.tell()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_batch(table)
            spans.append((topic, partition, start, sink.tell(), table.num_rows))
    data = sink.getvalue()
    view = memoryview(data)
    for topic, partition, start, end, count in spans:
        parts.append(StagedPart(topic, partition, name, start, end - start, zlib.crc32(view[start:end]), count))
    return data, parts


def _joined(rows: Sequence[_Rows]) -> tuple[npt.NDArray[np.int32], pa.RecordBatch]:
    """The rows of one topic, sorted by partition; rows of a partition keep their order."""
    names = [name for name in PAYLOAD if any(name in each.columns for each in rows)]
    columns = [_column(rows, name) for name in names]
    partitions = np.concatenate([each.partitions for each in rows])
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    if (partitions[1:] >= partitions[:-1]).all():
        return partitions, batch
    order = np.argsort(partitions, kind="stable")
    return partitions[order], _taken(batch, order)


def _taken(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    chosen: Any = pa.array(rows)
    return batch.take(chosen)


def _column(rows: Sequence[_Rows], name: str) -> pa.Array[Any]:
    """Column `name` of all `rows`; null where they lack it."""
    kind = next(each.columns[name].type for each in rows if name in each.columns)
    chunks: list[Any] = [
        each.columns[name] if name in each.columns else pa.nulls(len(each.partitions), kind) for each in rows
    ]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _ranges(joined: tuple[npt.NDArray[np.int32], pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The ranges of each partition, in order."""
    partitions, batch = joined
    starts = np.flatnonzero(np.diff(partitions, prepend=np.int32(-1)))
    for first, end in zip(starts.tolist(), [*starts.tolist()[1:], len(partitions)], strict=True):
        yield from ((int(partitions[first]), part) for part in _cut(batch.slice(first, end - first)))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` in equal pieces, and those again, until each is within the bounds of a range."""
    pieces = max(-(-batch.nbytes // RANGE_BYTES), -(-batch.num_rows // RANGE_RECORDS))
    if pieces <= 1 or batch.num_rows == 1:
        yield batch
        return
    rows = -(-batch.num_rows // min(pieces, batch.num_rows))
    for first in range(0, batch.num_rows, rows):
        yield from _cut(batch.slice(first, rows))
