"""Records become batches, and a batch becomes the shares of its partitions.

`Gathering` collects records as Python objects and turns a whole batch into Arrow columns at once, so that the code per
record is an append and a subtraction. Keys are stored from the first record that has one. A timestamp, headers or a
partition, which few records have, are stored by row. Kafka's murmur2 over the key column chooses the partitions, and a
batch is split only if it must be.

Each record gets a number, which is how many records its producer was given before it, so that a refusal can name it.

Nothing here does I/O. The producer holds its lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.client.lanes import Numbers, Share
from tidelog.client.partitioners import Partitions
from tidelog.client.refusals import Refusals, refused_here
from tidelog.storage.errors import Invalid
from tidelog.storage.partitioner import NO_PARTITION, partitions_of
from tidelog.storage.records import DRAFT_SCHEMA

Headers = Sequence[tuple[str, bytes | None]]

BATCH_SCHEMA = DRAFT_SCHEMA.append(pa.field("partition", pa.int32()))
"""The columns of a batch before it is split. A null partition: the key decides."""

RECORD_OVERHEAD_BYTES = 16
"""Counted for each record beside its value, so that empty records fill a batch too."""


class Extras(NamedTuple):
    """The optional parts of a record beside its key; the timestamp is in ms."""

    timestamp: int | None
    headers: Headers | None
    partition: int | None


class Draft:
    """A batch being gathered. `append` is that of `values`. `room_bytes` is how many bytes the batch can still take; it
    is 0 until the batch has begun."""

    __slots__ = ("append", "extras", "keys", "room_bytes", "values")

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.append = self.values.append
        self.keys: list[bytes | None] = []
        self.extras: dict[int, Extras] = {}
        self.room_bytes = 0

    def __len__(self) -> int:
        return len(self.values)

    def put_rest(
        self, key: bytes | None, timestamp_ms: int | None, headers: Headers | None, partition: int | None
    ) -> None:
        """Set the optional parts of the record that was appended last."""
        row = len(self.values) - 1
        if key is not None:
            self._pad_keys(row)
            self.keys.append(key)
        if timestamp_ms is not None or headers is not None or partition is not None:
            self.extras[row] = Extras(timestamp_ms, headers, partition)

    def _pad_keys(self, rows: int) -> None:
        if len(self.keys) < rows:
            self.keys.extend([None] * (rows - len(self.keys)))

    def table(self) -> pa.Table:
        """The records, with the columns of `BATCH_SCHEMA` that hold a value. Raises `Invalid` for a record that Arrow
        cannot take."""
        columns: dict[str, Any] = {}
        try:
            if self.keys:
                self._pad_keys(len(self.values))
                columns["key"] = _binary(self.keys)
            columns["value"] = _binary(self.values)
            for name in Extras._fields if self.extras else ():
                column = self._column(name)
                if column.count(None) < len(column):
                    columns[name] = pa.array(column, BATCH_SCHEMA.field(name).type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(f"a record cannot be sent ({error}): keys and values are bytes or None") from error
        return pa.table(columns)

    def unfit_rows(self, rows: Sequence[int] | None = None) -> list[int]:
        """Those of `rows` (None: of all rows) that Arrow cannot take, found by halving."""
        rows = range(len(self)) if rows is None else rows
        try:
            self.picked(rows).table()
        except Invalid:
            if len(rows) == 1:
                return list(rows)
            half = len(rows) // 2
            return self.unfit_rows(rows[:half]) + self.unfit_rows(rows[half:])
        return []

    def picked(self, rows: Sequence[int]) -> Draft:
        """A draft of these rows."""
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


class Gathering:
    """Gathers the batch `draft`, which began at `since` (None: it is empty). Records that Arrow cannot take go to
    `refusals`."""

    def __init__(
        self, topic: str, partition_count: int, refusals: Refusals, partitions: Partitions = partitions_of
    ) -> None:
        self.draft = Draft()
        self.since: float | None = None
        self.topic = topic
        self._partition_count = partition_count
        self._refusals = refusals
        self._partitions = partitions
        self._turn = 0
        self._given = 0

    @property
    def first_number(self) -> int | None:
        """The number of the first gathered record; None if there is none."""
        return self._given if len(self.draft) else None

    @property
    def newest_number(self) -> int:
        """The number of the record that was appended last."""
        return self._given + len(self.draft) - 1

    def begin(self, now: float, room_bytes: int) -> None:
        """Start a batch with its first record."""
        self.since = now
        self.draft.room_bytes += room_bytes

    def drop(self) -> int:
        """Drop the batch and return how many records it had."""
        dropped = len(self.draft)
        self.draft, self.since = Draft(), None
        return dropped

    def seal(self) -> Sequence[Share]:
        """The shares of the batch. The next one begins empty."""
        draft, self.draft, self.since = self.draft, Draft(), None
        numbers: Numbers = self._next(len(draft))
        try:
            records = draft.table()
        except Invalid as error:
            numbers, draft = self._without_unfit(numbers, draft, error)
            records = draft.table()
        return self._split(records, numbers) if len(draft) else ()

    def shares(self, records: pa.Table, partition: int | None = None) -> Sequence[Share]:
        """The shares of a table. All records go to `partition` if it is given."""
        numbers = self._next(records.num_rows)
        if partition is not None:
            records, _ = _without_named(records)
            return (Share(partition, records, records.nbytes, numbers),)
        return self._split(records, numbers)

    def _split(self, records: pa.Table, numbers: Numbers) -> Sequence[Share]:
        keyless, count = self._turn % self._partition_count, self._partition_count
        self._turn += 1
        return tuple(
            split(records, self._partitions, numbers=numbers, partition_count=count, keyless_partition=keyless)
        )

    def _without_unfit(self, numbers: Numbers, draft: Draft, error: Invalid) -> tuple[Numbers, Draft]:
        """Refuse the records that Arrow cannot take, and return the others."""
        unfit = draft.unfit_rows()
        for row in unfit:
            self._refusals.keep(refused_here(self.topic, int(numbers[row]), error))
        fit = np.delete(np.arange(len(draft)), unfit)
        return np.asarray(numbers)[fit], draft.picked(fit.tolist())

    def _next(self, count: int) -> range:
        """The numbers of the next `count` records."""
        self._given += count
        return range(self._given - count, self._given)


def _binary(column: list[bytes | None]) -> pa.Array[Any]:
    """`column` as an Arrow array. Joining bytes is twice as fast as Arrow's own conversion, which is used for nulls."""
    try:
        data = b"".join(cast("list[bytes]", column))
    except TypeError:
        return pa.array(column, pa.binary())
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, cast("list[bytes]", column)), np.int32, len(column)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers)


def columns_of(records: pa.Table | pa.RecordBatch) -> pa.Table:
    """A user's table in the types of `BATCH_SCHEMA`. It has a column `value` and optionally the others; text becomes
    UTF-8. Raises `Invalid` for other columns or types."""
    table = pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records
    unknown = sorted(set(table.column_names) - set(BATCH_SCHEMA.names))
    if unknown or "value" not in table.column_names:
        raise Invalid(
            "a table of records has a column value and may have key, timestamp, headers, partition; this one "
            + (f"has {', '.join(unknown)}" if unknown else "has no column value")
        )
    wanted = pa.schema([field for field in BATCH_SCHEMA if field.name in table.column_names])
    try:
        return table.select(wanted.names).cast(wanted)
    except (pa.ArrowException, ValueError) as error:
        raise Invalid(f"a column has a type that does not fit ({error})") from error


def split(
    records: pa.Table,
    by_key: Partitions = partitions_of,
    *,
    numbers: Numbers,
    partition_count: int,
    keyless_partition: int,
) -> Iterator[Share]:
    """The shares of a batch. A record goes to the partition that it names, otherwise to the one of its key, otherwise
    to `keyless_partition`. The order within a partition is kept. Raises `Invalid` for a partition that does not
    exist."""
    records, named = _without_named(records)
    if named is None and (partition_count == 1 or "key" not in records.column_names):
        yield Share(keyless_partition, records, records.nbytes, numbers)
        return
    partitions = _partitions(records, named, by_key, partition_count, keyless_partition)
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


def _without_named(records: pa.Table) -> tuple[pa.Table, pa.ChunkedArray[Any] | None]:
    """The records without the partitions that they name, and those (None if no record names one)."""
    if "partition" not in records.column_names:
        return records, None
    return records.drop_columns(["partition"]), records.column("partition")


def _partitions(
    records: pa.Table,
    named: pa.ChunkedArray[Any] | None,
    by_key: Partitions,
    partition_count: int,
    keyless_partition: int,
) -> npt.NDArray[np.int32]:
    chosen = np.full(records.num_rows, keyless_partition, np.int32)
    if "key" in records.column_names:
        of_keys = by_key(records.column("key"), partition_count)
        chosen = np.where(of_keys == NO_PARTITION, chosen, of_keys)
    if named is None:
        return chosen
    numbers = np.asarray(named.fill_null(pa.scalar(NO_PARTITION, pa.int32())).to_numpy())
    named_rows = ~np.asarray(named.is_null().to_numpy())
    wrong = numbers[named_rows & ((numbers < 0) | (numbers >= partition_count))]
    if len(wrong):
        raise Invalid(f"there is no partition {wrong[0]}: the topic has 0 to {partition_count - 1}", field="partition")
    return np.where(named_rows, numbers, chosen)
