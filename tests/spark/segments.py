"""A segment like the archiver's, for tests that read one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidelog.storage.layout import TopicPartition
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.wire.topics import SegmentDescription

RECORDS_IN_SEGMENT = 1_000
SEGMENT_ID, TOPIC_ID = "5e" * 16, "70" * 16


def segment(key: str, base: int, last: int, min_timestamp: int, max_timestamp: int) -> SegmentDescription:
    """A description of a segment without gaps."""
    return SegmentDescription(key, base, last, last - base + 1, 0, min_timestamp, max_timestamp, "")


def write_segment(root: Path) -> str:
    """Write a segment with offsets 0 to 999 and timestamps ten times the offset; return its key."""
    offsets = range(RECORDS_IN_SEGMENT)
    columns = {
        "offset": list(offsets),
        "timestamp": [10 * offset for offset in offsets],
        "key": [None if offset % 3 else b"k" for offset in offsets],
        "value": [b"v" * (offset % 200) for offset in offsets],
        "headers": [None for _ in offsets],
    }
    table = pa.table([pa.array(columns[f.name], f.type) for f in RECORD_SCHEMA], schema=RECORD_SCHEMA)
    encoded = encode_segment("web", TopicPartition(TOPIC_ID, 0), table, SEGMENT_ID)
    path = root / encoded.segment.key
    path.parent.mkdir(parents=True)
    path.write_bytes(encoded.body)
    return encoded.segment.key
