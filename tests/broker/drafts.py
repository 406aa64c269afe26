"""Drafts for tests, and the results of fetches as plain values."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelog.services.broker.api.fetch import Fetched
from tidelog.services.broker.api.produce import Draft
from tidelog.storage.records import DRAFT_SCHEMA


def draft(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int | None] | None = None,
    partitions: Sequence[int | None] | None = None,
) -> Draft:
    """Make a draft of `values`; columns that are not given are null."""
    count = len(values)
    columns: list[Any] = [
        pa.array(timestamps or [None] * count, DRAFT_SCHEMA.field("timestamp").type),
        pa.array(keys or [None] * count, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(count, DRAFT_SCHEMA.field("headers").type),
    ]
    records = pa.Table.from_arrays(columns, schema=DRAFT_SCHEMA)
    named = pa.chunked_array([pa.array(partitions, pa.int32())]) if partitions is not None else None
    return Draft(records, named, records.nbytes)


def numbered(start: int, count: int) -> Draft:
    """Make `count` records whose values are the numbers from `start` on."""
    return draft([b"%d" % number for number in range(start, start + count)])


def values_of(fetched: Fetched) -> list[bytes]:
    return [value for batch in fetched.batches for value in batch.column("value").to_pylist()]


def offsets_of(fetched: Fetched) -> list[int]:
    return [offset for batch in fetched.batches for offset in batch.column("offset").to_pylist()]


def timestamps_of(fetched: Fetched) -> list[int]:
    return [number for batch in fetched.batches for number in batch.column("timestamp").cast(pa.int64()).to_pylist()]
