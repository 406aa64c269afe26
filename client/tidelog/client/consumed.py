"""Records as a consumer gives them out: a `Batch` of Arrow columns, or `Record`s one by one.

Columns become numpy arrays by `numpy.from_dlpack`. Arrow's own `to_numpy` imports pandas if it is installed, which
takes half a second of a program's first poll.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from tidelog.wire.groups import TopicPartitions

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

ROWS_AT_ONCE = 256


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class CommittedPosition(NamedTuple):
    """The offset of the next record to read, and a note of the program that is kept with it."""

    offset: int
    metadata: str = ""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. `timestamp_ms` counts from 1970 UTC; `headers` keep their order."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record is in."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Batch:
    """Records of one partition: a table with `records.RECORD_SCHEMA`. Reading continues at `next_offset`."""

    topic: str
    partition: int
    records: pa.Table
    next_offset: int
    high_watermark: int
    log_start_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the records are in."""
        return TopicPartition(self.topic, self.partition)

    def before(self, end: int) -> Batch:
        """This batch without the records from `end` on."""
        if self.next_offset <= end:
            return self
        return replace(self, records=self.records.slice(0, rows_before(self.records, end)), next_offset=end)


def rows_before(records: pa.Table, end: int) -> int:
    """How many of `records` have offsets below `end`."""
    return sum(int(np.searchsorted(np.from_dlpack(chunk), end)) for chunk in records.column("offset").chunks)


def records_of(batch: Batch) -> Iterator[Record]:
    """The records of a batch as Python objects."""
    return chain.from_iterable(record_pieces(batch))


def record_pieces(batch: Batch) -> Iterator[Iterator[Record]]:
    """The records of a batch as Python objects, a few at once, because memory in the processor's cache is three times
    as fast."""
    for whole in batch.records.to_batches():
        for first in range(0, whole.num_rows, ROWS_AT_ONCE):
            piece = whole.slice(first, ROWS_AT_ONCE)
            yield map(
                Record,
                repeat(batch.topic),
                repeat(batch.partition),
                np.from_dlpack(piece.column("offset")).tolist(),
                np.from_dlpack(piece.column("timestamp").view(pa.int64())).tolist(),
                _values(piece.column("key")),
                _values(piece.column("value")),
                _headers_of(piece.column("headers")),
            )


def grouped(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """`partitions` by topic, as the interface has them."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in found.items())


def flattened(groups: Iterable[TopicPartitions]) -> frozenset[TopicPartition]:
    """The partitions of `groups` one by one."""
    return frozenset(TopicPartition(group.topic, partition) for group in groups for partition in group.partitions)


def _values(column: Any) -> Iterable[bytes | None]:
    return repeat(None) if column.null_count == len(column) else column.to_pylist()


def _headers_of(column: Any) -> Iterable[Headers]:
    if column.null_count == len(column):
        return repeat(())
    return [_pairs(headers) for headers in column.to_pylist()]


def _pairs(headers: Sequence[Mapping[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in headers or ())
