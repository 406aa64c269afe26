"""A simulated bucket of terabytes that needs no disk: real manifests in memory, and segments with only a footer.

Each footer is that of a real segment with the same number of row groups; offsets, partition and checksum are patched
in. So a reader decodes and checks the same data as in a real segment. Every request takes as long as one to S3.
"""

from __future__ import annotations

import asyncio
import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidelog.storage.layout import TopicPartition, parse_segment_key, segment_key
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import Body, ByteRange, ObjectInfo, StoredObject
from tidelog.storage.parquet.parquet_format import CHECKSUM_DIGITS, CHECKSUMS, footer_bytes
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_codec import encode_segment
from tidelog.storage.stores.memory import MemoryObjectStore

TOPIC, TOPIC_ID = "web", "11" * 16
SEGMENT_BYTES = 128 * 1024 * 1024
ROW_GROUPS = 100
ROWS_A_GROUP = 128
VALUE_BYTES = 64 * 1024
FIRST_OFFSET = 10**12
"""All offsets have the same number of digits, so that a header has the same length in every segment."""
FIRST_PARTITION = 10
REQUEST_S = 0.03


class FooterTemplate:
    """The footer of a real segment, as a template for others."""

    def __init__(self) -> None:
        made = encode_segment(TOPIC, TopicPartition(TOPIC_ID, FIRST_PARTITION), _records(), "0" * 32)
        body = bytes(made.body)
        self.segment = made.segment
        self.footer = body[-footer_bytes("", body) :]
        self._offsets = [
            (found.start(), offset)
            for group in range(ROW_GROUPS)
            for offset in (FIRST_OFFSET + group * ROWS_A_GROUP, FIRST_OFFSET + (group + 1) * ROWS_A_GROUP - 1)
            for found in re.finditer(re.escape(struct.pack("<q", offset)), self.footer)
        ]
        header = re.search(rb'"partition":(\d+),"base_offset":(\d+),"last_offset":(\d+)', self.footer)
        checksums = CHECKSUMS.search(self.footer)
        assert header is not None
        assert checksums is not None
        self._header = [header.start(place) for place in (1, 2, 3)]
        self._checksum = checksums.start(1)

    @property
    def records(self) -> int:
        return ROW_GROUPS * ROWS_A_GROUP

    def of(self, partition: int, base_offset: int, last_offset: int) -> bytes:
        """Make the footer of the segment with these offsets."""
        footer = bytearray(self.footer)
        for position, offset in self._offsets:
            struct.pack_into("<q", footer, position, offset + base_offset - FIRST_OFFSET)
        for position, number in zip(self._header, (partition, base_offset, last_offset), strict=True):
            digits = b"%d" % number
            footer[position : position + len(digits)] = digits
        footer[self._checksum : self._checksum + CHECKSUM_DIGITS] = b"0" * CHECKSUM_DIGITS
        footer[self._checksum : self._checksum + CHECKSUM_DIGITS] = b"%08x" % zlib.crc32(footer)
        return bytes(footer)


def _records() -> pa.Table:
    """Records for the row groups of a large segment; one chunk of values is repeated."""
    rows = ROW_GROUPS * ROWS_A_GROUP
    values = pa.chunked_array([pa.array([b"v" * VALUE_BYTES] * ROWS_A_GROUP, pa.binary())] * ROW_GROUPS)
    offsets = pa.array(np.arange(FIRST_OFFSET, FIRST_OFFSET + rows))
    times = pa.array(np.arange(rows) + 1_700_000_000_000).cast(RECORD_SCHEMA.field("timestamp").type)
    empty = [pa.nulls(rows, RECORD_SCHEMA.field(name).type) for name in ("key", "headers")]
    return pa.table([offsets, times, empty[0], values, empty[1]], schema=RECORD_SCHEMA)


class MadeUpBucket(MemoryObjectStore):
    """Implements `ObjectStore`: keeps all objects that are put, and adds the simulated segments."""

    def __init__(self, request_s: float = REQUEST_S) -> None:
        super().__init__()
        self._template = FooterTemplate()
        self._request_s = request_s
        self._segments: dict[str, ObjectInfo] = {}
        self._names: list[str] = []
        self._mistaken: dict[str, str] = {}
        self.requests = 0

    async def fill(self, partitions: int, segments: int) -> int:
        """Write a manifest of `segments` segments for each of `partitions` partitions. Return their bytes."""
        for partition in range(FIRST_PARTITION, FIRST_PARTITION + partitions):
            place = TopicPartition(TOPIC_ID, partition)
            listed = tuple(self._segments_of(place, segments))
            end = listed[-1].next_offset
            manifest = Manifest(place, log_start_offset=FIRST_OFFSET, segments=listed, cold_end=end)
            await ManifestLog(self, TOPIC, place).append(manifest)
            for segment in listed:
                self._segments[segment.key] = ObjectInfo(segment.key, segment.size_bytes, "1", 1)
        self._names = sorted(self._segments)
        return sum(info.size for info in self._segments.values())

    def _segments_of(self, place: TopicPartition, count: int) -> Iterator[Segment]:
        records = self._template.records
        for number in range(count):
            base = FIRST_OFFSET + number * records
            last = base + records - 1
            key = segment_key(TOPIC, TOPIC_ID, place.partition, base, last, f"{number:032x}")
            yield replace(
                self._template.segment,
                key=key,
                base_offset=base,
                last_offset=last,
                size_bytes=SEGMENT_BYTES,
                sha256=f"{number:064x}",
            )

    def mistake(self, key: str, other: str) -> None:
        """From now on return the object `other` for `key`."""
        self._mistaken[key] = other

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        await self._round_trip()
        info = self._segments.get(key)
        if info is None:
            return await super().get(key, byte_range)
        assert byte_range is not None, "nobody reads a whole segment here"
        start, stop = byte_range.within(info.size)
        name = parse_segment_key(self._mistaken.get(key, key))
        footer = self._template.of(name.partition, name.base_offset, name.last_offset)
        return StoredObject(info, footer.rjust(stop - start, b"\0")[start - stop :])

    async def list(self, prefix: str, *, start_after: str = "", limit: int = 1_000) -> Sequence[ObjectInfo]:
        await self._round_trip()
        kept = await super().list(prefix, start_after=start_after, limit=limit)
        first = max(bisect_left(self._names, prefix), bisect_right(self._names, start_after))
        made_up = [self._segments[key] for key in self._names[first : first + limit] if key.startswith(prefix)]
        return sorted((*kept, *made_up), key=lambda info: info.key)[:limit]

    async def head(self, key: str) -> ObjectInfo:
        await self._round_trip()
        return self._segments.get(key) or await super().head(key)

    async def create(self, key: str, data: Body) -> str:
        await self._round_trip()
        return await super().create(key, data)

    async def _round_trip(self) -> None:
        self.requests += 1
        await asyncio.sleep(self._request_s)
