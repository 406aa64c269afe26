"""The schemas of records in all rooms. Records are Arrow tables and batches, never Python objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("ms", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))

_PAYLOAD_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS),
]

TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999. ISO 8601 and Spark support no later time."""

DRAFT_SCHEMA = pa.schema([pa.field("timestamp", TIMESTAMP), *_PAYLOAD_FIELDS])
"""Records before they have offsets, as body decoders give them to the broker: timestamp (ms, UTC; if null, the broker
sets it), key, value (bytes or null), headers (list or null)."""

RECORD_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        *_PAYLOAD_FIELDS,
    ]
)
"""Records as readers get them and segments hold them: offset (ascending), timestamp (never null), key, value,
headers."""

WAL_SCHEMA = pa.schema([pa.field("partition", pa.int32(), nullable=False), *RECORD_SCHEMA])
"""The records of a WAL entry in memory: of many partitions, sorted by (topic id, partition, offset). The entry's spans
say which rows belong to which topic."""

_HEADER: list[pa.Field[Any]] = [
    pa.field("key", pa.string(), nullable=False, metadata={b"PARQUET:field_id": b"8"}),
    pa.field("value", pa.binary(), metadata={b"PARQUET:field_id": b"9"}),
]
_STORED: list[pa.Field[Any]] = [
    pa.field("partition", pa.int32(), nullable=False, metadata={b"PARQUET:field_id": b"1"}),
    pa.field("offset", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"2"}),
    pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False, metadata={b"PARQUET:field_id": b"3"}),
    pa.field("key", pa.binary(), metadata={b"PARQUET:field_id": b"4"}),
    pa.field("value", pa.binary(), metadata={b"PARQUET:field_id": b"5"}),
    pa.field(
        "headers",
        pa.list_(pa.field("element", pa.struct(_HEADER), metadata={b"PARQUET:field_id": b"7"})),
        metadata={b"PARQUET:field_id": b"6"},
    ),
]
STORED_SCHEMA = pa.schema(_STORED)
"""The columns of every stored record, in WAL entries and in segments alike, so that row groups can be copied from one
to the other. Field ids are for ever: a new column gets a new one. Timestamps are in microseconds, because Iceberg has
no type for milliseconds; they are multiples of 1,000 (ADR 0030)."""

_TIMESTAMP_AT = STORED_SCHEMA.get_field_index("timestamp")


def as_stored(records: pa.Table) -> pa.Table:
    """`records` (`WAL_SCHEMA`) with the columns of `STORED_SCHEMA`. Only the timestamps are copied."""
    columns = list(records.columns)
    columns[_TIMESTAMP_AT] = columns[_TIMESTAMP_AT].cast(STORED_SCHEMA.field(_TIMESTAMP_AT).type)
    return pa.Table.from_arrays(columns, schema=STORED_SCHEMA)


def from_stored(records: pa.Table) -> pa.Table:
    """The inverse of `as_stored`. Raises `pa.ArrowInvalid` for a timestamp between two milliseconds."""
    columns = list(records.columns)
    columns[_TIMESTAMP_AT] = columns[_TIMESTAMP_AT].cast(TIMESTAMP)
    return pa.Table.from_arrays(columns, schema=WAL_SCHEMA)
