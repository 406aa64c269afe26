"""Records on their way to the broker: gathered as Python objects, turned into Arrow columns a batch at a time.

What runs once a record does next to nothing: an append, and a subtraction from the room that is left. Keys begin with
the first record that has one; what few records have (timestamp, headers, partition) is kept aside by row. All else is
done for a whole batch: the columns are built by Arrow, the partitions of keys are found by Kafka's murmur2 over the key
column, and a batch is split only if it has to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.errors import Invalid
from tidelog.storage.partitioner import NO_PARTITION, partitions_of
from tidelog.storage.records import DRAFT_SCHEMA, TIMESTAMP

Headers = Sequence[tuple[str, bytes | None]]
Numbers: TypeAlias = "range | npt.NDArray[np.int64]"
"""How many records their producer was given before each of some records."""

RECORD_OVERHEAD_BYTES = 16
"""Counted for each record beside its value, so that a flood of empty records fills a batch too."""


@dataclass(frozen=True)
class Extras:
    """What a record may carry beside key and value."""

    timestamp_ms: int | None
    headers: Headers | None
    partition: int | None


@dataclass(frozen=True)
class Share:
    """Records of one batch for one partition, with the columns of `records.DRAFT_SCHEMA` that are not all null."""

    partition: int
    records: pa.Table
    bytes: int
    numbers: Numbers


class Draft:
    """A batch being gathered. Not safe for threads: its producer's lock guards it. `append` is that of `values`;
    `room_bytes` is the producer's count of what the batch may still take, and 0 until it has begun."""

    __slots__ = ("append", "extras", "keys", "room_bytes", "values")

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.append = self.values.append
        self.keys: list[bytes | None] = []
        self.extras: dict[int, Extras] = {}
        self.room_bytes = 0

    def __len__(self) -> int:
        return len(self.values)

    def put_key(self, key: bytes) -> None:
        """The key of the record appended last."""
        self._pad_keys(len(self.values) - 1)
        self.keys.append(key)

    def _pad_keys(self, rows: int) -> None:
        if len(self.keys) < rows:
            self.keys.extend([None] * (rows - len(self.keys)))

    def table(self) -> tuple[pa.Table, pa.ChunkedArray[Any] | None]:
        """The records, and the partitions they name (null: none), or None if no record names one.
        Raises `Invalid` for a record that Arrow cannot take."""
        columns: dict[str, Any] = {}
        try:
            if any(extra.timestamp_ms is not None for extra in self.extras.values()):
                columns["timestamp"] = pa.array(self._column("timestamp_ms"), TIMESTAMP)
            if self.keys:
                self._pad_keys(len(self.values))
                columns["key"] = _binary(self.keys)
            columns["value"] = _binary(self.values)
            if any(extra.headers is not None for extra in self.extras.values()):
                columns["headers"] = pa.array(self._column("headers"), DRAFT_SCHEMA.field("headers").type)
            named = pa.chunked_array([pa.array(self._column("partition"), pa.int32())]) if self.extras else None
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(f"a record cannot be sent ({error}): keys and values are bytes or None") from error
        return pa.table(columns), named

    def unfit_rows(self) -> list[int]:
        """The rows that Arrow cannot take, found by halving."""
        return self._unfit(range(len(self)))

    def _unfit(self, rows: Sequence[int]) -> list[int]:
        try:
            self.picked(rows).table()
        except Invalid:
            if len(rows) == 1:
                return list(rows)
            half = len(rows) // 2
            return self._unfit(rows[:half]) + self._unfit(rows[half:])
        return []

    def picked(self, rows: Sequence[int]) -> Draft:
        """A draft of these rows alone."""
        some = Draft()
        some.values += [self.values[row] for row in rows]
        if self.keys:
            self._pad_keys(len(self))
            some.keys += [self.keys[row] for row in rows]
        some.extras.update({n: self.extras[row] for n, row in enumerate(rows) if row in self.extras})
        return some

    def _column(self, name: str) -> list[Any]:
        column: list[Any] = [None] * len(self.values)
        for row, extra in self.extras.items():
            column[row] = getattr(extra, name)
        return column


def _binary(column: list[bytes | None]) -> pa.Array[Any]:
    """`column` as an Arrow array; joining bytes is twice as fast as Arrow's own conversion, which takes nulls too."""
    try:
        data = b"".join(cast("list[bytes]", column))
    except TypeError:
        return pa.array(column, pa.binary())
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, cast("list[bytes]", column)), np.int32, len(column)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers)


def columns_of(records: pa.Table | pa.RecordBatch) -> tuple[pa.Table, pa.ChunkedArray[Any] | None]:
    """A table of a user's as (records, named partitions): columns `value` and, optionally, `key`, `timestamp`,
    `headers`, `partition`; text becomes its UTF-8. Raises `Invalid` for another column or a type that does not fit."""
    table = pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records
    unknown = sorted(set(table.column_names) - {*DRAFT_SCHEMA.names, "partition"})
    if unknown or "value" not in table.column_names:
        raise Invalid(
            f"a table of records has a column value and may have key, timestamp, headers, partition; not "
            f"{', '.join(unknown) or 'none'}"
        )
    wanted = pa.schema([field for field in DRAFT_SCHEMA if field.name in table.column_names])
    try:
        named = table.column("partition").cast(pa.int32()) if "partition" in table.column_names else None
        return table.select(wanted.names).cast(wanted), named
    except (pa.ArrowException, ValueError) as error:
        raise Invalid(f"a column has a type that does not fit ({error})") from error


def split(
    records: pa.Table,
    named: pa.ChunkedArray[Any] | None,
    *,
    numbers: Numbers,
    partition_count: int,
    keyless_partition: int,
) -> Iterator[Share]:
    """The shares of a batch: each record where it says, else where its key says, else to `keyless_partition`;
    the order within a partition is kept. Raises `Invalid` for a partition that is not there."""
    if named is None and (partition_count == 1 or "key" not in records.column_names):
        yield Share(keyless_partition, records, records.nbytes, numbers)
        return
    partitions = _partitions(records, named, partition_count, keyless_partition)
    if (partitions == partitions[0]).all():
        yield Share(int(partitions[0]), records, records.nbytes, numbers)
        return
    order = np.argsort(partitions, kind="stable")
    gathered = records.combine_chunks().take(order)
    ordered = order + numbers.start if isinstance(numbers, range) else numbers[order]
    found, firsts = np.unique(partitions[order], return_index=True)
    for partition, first, end in zip(found, firsts, [*firsts[1:], len(order)], strict=True):
        share = gathered.slice(int(first), int(end - first))
        yield Share(int(partition), share, share.nbytes, ordered[first:end])


def _partitions(
    records: pa.Table, named: pa.ChunkedArray[Any] | None, partition_count: int, keyless_partition: int
) -> npt.NDArray[np.int32]:
    chosen = np.full(records.num_rows, keyless_partition, np.int32)
    if "key" in records.column_names:
        by_key = partitions_of(records.column("key"), partition_count)
        chosen = np.where(by_key == NO_PARTITION, chosen, by_key)
    if named is None:
        return chosen
    numbers = np.asarray(named.fill_null(pa.scalar(NO_PARTITION, pa.int32())).to_numpy())
    named_rows = ~np.asarray(named.is_null().to_numpy())
    wrong = numbers[named_rows & ((numbers < 0) | (numbers >= partition_count))]
    if len(wrong):
        raise Invalid(f"there is no partition {wrong[0]}: the topic has 0 to {partition_count - 1}", field="partition")
    return np.where(named_rows, numbers, chosen)
