"""Describes segments that no list describes, from their own content: for repairs."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.object_store import ObjectInfo, ObjectStore
from tidelog.storage.parquet.parquet_format import decode_parquet
from tidelog.storage.segments.topic_segment import (
    SEGMENT_FLAVOR,
    SegmentPlace,
    decode_place,
    max_timestamp_ms,
    min_timestamp_ms,
    order_fault,
    sha256_of,
)

FINAL_LEVEL = 2
"""Of a segment with an index of pages, which is not merged again."""


async def described(store: ObjectStore, place: SegmentPlace, info: ObjectInfo) -> TopicSegment | None:
    """The segment that was listed as `info`, read whole; None if it is not a sound segment of `place`. Its run is
    unknown, and counts as archived when it was written."""
    try:
        data = (await store.get(info.key)).data
        return await asyncio.to_thread(_segment_of, place, info, data)
    except (Corrupt, NotFound):
        return None


def _segment_of(place: SegmentPlace, info: ObjectInfo, data: bytes) -> TopicSegment:
    """Raises `Corrupt`."""
    footer, records = decode_parquet(info.key, SEGMENT_FLAVOR, data)
    found, stated = decode_place(info.key, footer)
    spans, row = [], 0
    for partition, base_offset, last_offset, count in stated:
        raw_bytes = _raw_bytes(records.slice(row, count))
        spans.append(SegmentSpan(partition, base_offset, last_offset, count, raw_bytes))
        row += count
    if found != place or not spans:
        raise Corrupt(info.key, "belongs to another topic or shard than its name says")
    if fault := order_fault(spans, records):
        raise Corrupt(info.key, fault)
    times = min_timestamp_ms(footer.row_groups), max_timestamp_ms(footer.row_groups)
    level = 0 if footer.index_crc32 is None else FINAL_LEVEL
    return TopicSegment(info.key, 0, level, len(data), sha256_of(data), *times, info.modified_ms, tuple(spans))


def _raw_bytes(records: pa.Table) -> int:
    return sum(pc.sum(pc.binary_length(records[name])).as_py() or 0 for name in ("key", "value"))
