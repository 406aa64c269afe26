"""The schemas of records in all rooms. Records are Arrow tables and batches, never Python objects."""

from __future__ import annotations

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

WAL_SCHEMA = pa.schema(
    [
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""The records of a WAL entry: of many partitions, sorted by (topic_id, partition, offset)."""
