"""The shape of records between all rooms: Arrow tables and batches, never Python objects.

`RECORD_SCHEMA` is what readers get and what segments hold; `DRAFT_SCHEMA` is the same before offsets are assigned,
what body decoders hand to the broker. WAL entries put `topic_id` and `partition` before it (`WAL_SCHEMA`).
"""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("ms", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))

_PAYLOAD_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS),
]

DRAFT_SCHEMA = pa.schema([pa.field("timestamp", TIMESTAMP), *_PAYLOAD_FIELDS])
"""timestamp (ms, UTC; null: the broker stamps it), key, value (bytes or null), headers (list or null)."""

RECORD_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        *_PAYLOAD_FIELDS,
    ]
)
"""A record as readers see it: offset (ascending), timestamp (never null), key, value, headers."""

WAL_SCHEMA = pa.schema(
    [
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""A WAL entry: records of many partitions, sorted by (topic_id, partition, offset)."""
