"""Makes a `Draft` of columns, with the checks that apply to every media type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.services.broker.api.produce import Draft
from tidelog.storage.errors import Invalid
from tidelog.storage.records import DRAFT_SCHEMA, HEADERS, TIMESTAMP, TIMESTAMP_MS_MAX

BINARY = pa.binary()
PARTITION = pa.int32()
CACHED_NULLS_MAX = 1_000
HEADERS_MAX = 10_000
"""Headers of one record. Each becomes an object when the record is read as JSON."""
RECORD_BYTES = 32
"""The most that a record takes in columns besides its key, value and headers. For short records that is more than their
text."""
Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"


@dataclass(frozen=True)
class RecordColumns:
    """The columns of some records, of equal length. A column that is None is null in every row."""

    value: Column
    key: Column | None = None
    timestamp: Column | None = None
    headers: Column | None = None
    partitions: Column | None = None


def draft_of(records: RecordColumns, body_bytes: int) -> Draft:
    """The draft of `records`. Raises `Invalid` if there is none, a timestamp or partition is out of range, or a record
    has too many headers."""
    count = len(records.value)
    if not count:
        raise Invalid("the body holds no records: send at least one", field="records")
    if records.timestamp is not None:
        _check_range(records.timestamp.cast(pa.int64()), "timestamp", TIMESTAMP_MS_MAX)
    if records.partitions is not None:
        _check_range(records.partitions, "partition", 2**31 - 1)
    if records.headers is not None:
        _check_header_counts(records.headers)
    columns = [
        _nulls(count, TIMESTAMP) if records.timestamp is None else records.timestamp,
        _nulls(count, BINARY) if records.key is None else records.key,
        records.value,
        _nulls(count, HEADERS) if records.headers is None else records.headers,
    ]
    partitions = None if records.partitions is None else _chunked(records.partitions)
    return Draft(pa.Table.from_arrays(columns, schema=DRAFT_SCHEMA), partitions, max(body_bytes, RECORD_BYTES * count))


def joined(pieces: Sequence[RecordColumns]) -> RecordColumns:
    """The records of all `pieces`."""
    if len(pieces) == 1:
        return pieces[0]
    counts = [len(piece.value) for piece in pieces]
    values: Any = [piece.value for piece in pieces]
    return RecordColumns(
        pa.chunked_array(values, BINARY),
        _joined([piece.key for piece in pieces], counts, BINARY),
        _joined([piece.timestamp for piece in pieces], counts, TIMESTAMP),
        _joined([piece.headers for piece in pieces], counts, HEADERS),
        _joined([piece.partitions for piece in pieces], counts, PARTITION),
    )


def _joined(columns: Sequence[Column | None], counts: Sequence[int], kind: Any) -> Column | None:
    if all(column is None for column in columns):
        return None
    chunks: Any = [
        pa.nulls(count, kind) if column is None else column for column, count in zip(columns, counts, strict=True)
    ]
    return pa.chunked_array(chunks, kind)


def _nulls(count: int, kind: Any) -> Column:
    """Small columns are cached, because most bodies lack the same columns and have one of a few sizes."""
    return _cached_nulls(count, kind) if count <= CACHED_NULLS_MAX else pa.nulls(count, kind)


@lru_cache(maxsize=128)
def _cached_nulls(count: int, kind: Any) -> Column:
    nulls: Column = pa.nulls(count, kind)
    return nulls


def check_record_count(count: int, records_max: int) -> None:
    """Raises `Invalid` if a body has more records than ``request.max.records``."""
    if count > records_max:
        raise Invalid(
            f"the body holds {count} records, more than request.max.records ({records_max}): send fewer per request",
            field="records",
        )


def _check_range(column: Column, name: str, high: int) -> None:
    least, most = pc.min_max(column).values()
    if not least.is_valid:
        return
    if least.as_py() < 0 or most.as_py() > high:
        wrong = least.as_py() if least.as_py() < 0 else most.as_py()
        row = pc.index(column, wrong).as_py()
        raise Invalid(f"{name} is a number from 0 to {high}, not {wrong}", field=name, record=row)


def _check_header_counts(headers: Column) -> None:
    most = pc.max(pc.list_value_length(headers)).as_py() or 0
    if most > HEADERS_MAX:
        raise Invalid(f"a record has {most} headers: at most {HEADERS_MAX} are allowed", field="headers")


def _chunked(column: Column) -> pa.ChunkedArray[Any]:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
