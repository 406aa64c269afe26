"""Reads the last bytes of a segment: its footer, and with it a small segment whole.

tail = await read_tail(store, segment)
data = await tail.read(store, start, end)           # no request for bytes that came with the footer
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property, partial

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ByteRange, ObjectReads
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES
from tidelog.storage.parquet.parquet_format import Footer, decode_footer, footer_bytes
from tidelog.storage.parquet.row_group_copy import CopySource
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, check_header, place_of

FOOTER_TAIL_BYTES = 64 * 1024
"""The first read takes this many bytes: enough for the footer of about 60 row groups."""
SPAN_TAIL_BYTES = 48
"""For each span, it takes so many bytes more."""
GROUP_TAIL_BYTES = 1280
"""For each row group of the usual size, it takes so many bytes more: its metadata, and the map of its pages."""


@dataclass(frozen=True)
class SegmentTail:
    """The footer of the segment `key`, and the last bytes of the object that were read with it."""

    key: str
    footer: Footer
    data: memoryview

    @cached_property
    def source(self) -> CopySource:
        """To copy row groups whose bytes were read. Threads may share it."""
        return CopySource(self.key, SEGMENT_FLAVOR, self.data, self.footer)

    async def read(self, store: ObjectReads, start: int, end: int) -> memoryview:
        """Bytes ``[start, end)`` of the object. Raises `NotFound`, `Unavailable`."""
        first = self.footer.object_bytes - len(self.data)
        if start >= first:
            return memoryview(bytes(self.data[start - first : end - first]))  # so that the rest can go
        return memoryview((await store.get(self.key, ByteRange(start, end - start))).data)


async def read_tail(store: ObjectReads, segment: TopicSegment, bytes_min: int = 0) -> SegmentTail:
    """At least the last `bytes_min`. One request, two for a footer that is longer than usual. Raises `NotFound`,
    `Corrupt`, `Unavailable`."""
    row_groups = sum(span.raw_bytes for span in segment.spans) // ROW_GROUP_RAW_BYTES
    expected = FOOTER_TAIL_BYTES + SPAN_TAIL_BYTES * len(segment.spans) + GROUP_TAIL_BYTES * row_groups
    data = await _last_bytes(store, segment, max(bytes_min, expected))
    needed = footer_bytes(segment.key, data)
    if len(data) < needed <= segment.size_bytes:
        data = await _last_bytes(store, segment, needed)
    decode = partial(decode_footer, segment.key, SEGMENT_FLAVOR, data, segment.size_bytes)
    footer = await asyncio.to_thread(decode) if needed > FOOTER_TAIL_BYTES else decode()
    check_header(segment, place_of(segment.key), footer)
    return SegmentTail(segment.key, footer, data)


async def _last_bytes(store: ObjectReads, segment: TopicSegment, length: int) -> memoryview:
    stored = await store.get(segment.key, ByteRange(-length))
    if stored.info.size != segment.size_bytes:
        raise Corrupt(segment.key, f"has {stored.info.size} bytes, its manifest says {segment.size_bytes}")
    return memoryview(stored.data)
