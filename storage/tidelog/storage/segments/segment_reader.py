"""Reads a segment from an offset on, by ranges: its footer once, then only the needed row groups.

    reader = SegmentReader(store)
    records = await reader.read(segment, offset, bytes_max=1 << 20)      # RECORD_SCHEMA, from `offset` on

A cold read takes two requests: one for the footer and one for the row groups, which are neighbours in the object. If
the footer is in the cache, it takes one; a small segment arrives whole with its footer. The statistics of `offset` and
`timestamp` decide purely which row groups are needed.

The fetched range is at least a row group, because the columns of one record are spread over it. Only the wanted part is
decoded: a few records take a page of values, not all of them (`segment_slice`). A row group that a small read fetched
is kept for a while as it is stored, because the next read is usually in it too.

Everything is checked (`parquet_format`). Decoding runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.parquet.parquet_format import Footer, RowGroup, footer_bytes
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_codec import (
    decode_segment_footer,
    decode_segment_rows,
    max_offset,
    max_timestamp_ms,
)
from tidelog.storage.segments.segment_slice import Wanted, decode_slice, offset_by_timestamp

FOOTER_CACHE_BYTES = 32 * 1024 * 1024
FOOTER_TAIL_BYTES = 64 * 1024
"""The first read of a footer takes this many bytes: enough for about 100 row groups, 800 MiB of raw records."""
READ_BYTES_MAX = 16 * 1024 * 1024
READ_RECORDS_MAX = 2**63 - 1
ROW_GROUP_CACHE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class SegmentTail:
    """A footer, and the last bytes of the object that were read with it."""

    footer: Footer
    data: bytes


async def read_tail(store: ObjectStore, segment: Segment) -> SegmentTail:
    """One request, two for a footer of more than `FOOTER_TAIL_BYTES`. Raises `NotFound`, `Corrupt`, `Unavailable`."""
    data = await read_last_bytes(store, segment, FOOTER_TAIL_BYTES)
    needed = footer_bytes(segment.key, data)
    if len(data) < needed <= segment.size_bytes:
        data = await read_last_bytes(store, segment, needed)
    return SegmentTail(decode_segment_footer(segment.key, data, segment.size_bytes), data)


async def read_last_bytes(store: ObjectStore, segment: Segment, length: int) -> bytes:
    """Raises `NotFound`, `Unavailable`; `Corrupt` if the object has another size than its manifest says."""
    stored = await store.get(segment.key, ByteRange(-length))
    if fault := size_fault(segment, stored.info.size):
        raise Corrupt(segment.key, fault)
    return stored.data


def size_fault(segment: Segment, size_bytes: int) -> str | None:
    """Why an object of `size_bytes` is not `segment`; None if it has the right size."""
    return (
        None if size_bytes == segment.size_bytes else f"has {size_bytes} bytes, its manifest says {segment.size_bytes}"
    )


class SegmentReader:
    """Shared by all readers of a store. Raises `NotFound` (the segment was compacted or expired), `Corrupt`,
    `Unavailable`."""

    def __init__(self, store: ObjectStore, *, footer_cache_bytes: int = FOOTER_CACHE_BYTES) -> None:
        self._store = store
        # Segments never change, so neither cache goes stale.
        self.footers: LRUCache[str, Footer] = LRUCache(footer_cache_bytes, _stored_bytes)
        self.row_groups: LRUCache[tuple[str, int], memoryview] = LRUCache(ROW_GROUP_CACHE_BYTES, len)

    async def read(
        self, segment: Segment, offset: int, *, bytes_max: int = READ_BYTES_MAX, records_max: int = READ_RECORDS_MAX
    ) -> pa.Table:
        """Records (`RECORD_SCHEMA`) from `offset` on: those of the row group that holds it, and of the following ones
        while all together take at most `bytes_max` uncompressed. Of a row group much larger than that, only a part may
        be returned. The caller must cut the result at its bounds. An empty table means that the segment has no records
        from `offset` on."""
        tail = await self._tail(segment)
        groups = plan_row_groups(tail.footer, offset, bytes_max, records_max)
        if not groups:
            return RECORD_SCHEMA.empty_table()
        if len(groups) == 1 and _is_part(groups[0], bytes_max, records_max):
            data = await self._kept(segment, tail, groups[0])
            wanted = Wanted(offset, bytes_max, records_max)
            return await asyncio.to_thread(decode_slice, segment.key, tail.footer, groups[0], data, wanted)
        data = await self._bytes(segment, tail, groups)
        records = await asyncio.to_thread(decode_segment_rows, segment.key, tail.footer, groups, data)
        first = int(np.searchsorted(records["offset"].to_numpy(), offset))
        return records.slice(first)

    def end_of_read(self, segment: Segment, offset: int, *, bytes_max: int) -> int | None:
        """The offset after the row groups that `read` returns from `offset` on; None if the footer is not cached."""
        if (footer := self.footers.get(segment.key)) is None:
            return None
        groups = plan_row_groups(footer, offset, bytes_max, READ_RECORDS_MAX)
        return max_offset(groups[-1]) + 1 if groups else segment.next_offset

    async def find_offset_by_timestamp(self, segment: Segment, timestamp_ms: int) -> int | None:
        """The first offset with a timestamp of `timestamp_ms` or later, as in Kafka; None if the segment has none.
        Timestamps need not ascend."""
        tail = await self._tail(segment)
        index = first_row_group_at(tail.footer, timestamp_ms)
        if index is None:
            return None
        group = tail.footer.row_groups[index]
        data = await self._kept(segment, tail, group)
        found = await asyncio.to_thread(offset_by_timestamp, segment.key, tail.footer, group, data, timestamp_ms)
        if found is None:
            raise Corrupt(segment.key, f"row group {index} lacks the timestamp that its statistics promise")
        return found

    async def _tail(self, segment: Segment) -> SegmentTail:
        if footer := self.footers.get(segment.key):
            return SegmentTail(footer, b"")
        tail = await read_tail(self._store, segment)
        if _stored_bytes(tail.footer) <= self.footers.maxsize:
            self.footers[segment.key] = tail.footer
        return tail

    async def _kept(self, segment: Segment, tail: SegmentTail, group: RowGroup) -> memoryview:
        """The bytes of `group`, which are kept for the next read."""
        data = await self._bytes(segment, tail, [group])
        if len(data) <= self.row_groups.maxsize:
            self.row_groups[segment.key, group.index] = data
        return data

    async def _bytes(self, segment: Segment, tail: SegmentTail, groups: Sequence[RowGroup]) -> memoryview:
        """The bytes of `groups`, which are neighbours."""
        kept = self.row_groups.get((segment.key, groups[0].index))
        if kept is not None and len(groups) == 1:
            return kept
        start, end = groups[0].start, groups[-1].end
        at_hand = segment.size_bytes - len(tail.data)
        if start >= at_hand:
            return memoryview(bytes(memoryview(tail.data)[start - at_hand : end - at_hand]))
        return memoryview((await self._store.get(segment.key, ByteRange(start, end - start))).data)


def _stored_bytes(footer: Footer) -> int:
    return footer.object_bytes - footer.start


def _is_part(group: RowGroup, bytes_max: int, records_max: int) -> bool:
    """Whether the read is so small that it pays to decode `group` in part."""
    return 2 * bytes_max <= group.raw_bytes or 2 * records_max <= group.rows


def plan_row_groups(footer: Footer, offset: int, bytes_max: int, records_max: int) -> tuple[RowGroup, ...]:
    """The row group that holds `offset` (the next one if compaction removed it), and the following ones until they have
    `bytes_max` raw bytes or `records_max` records; none if `offset` is beyond the segment."""
    taken: list[RowGroup] = []
    raw_bytes = records = 0
    for group in footer.row_groups:
        if max_offset(group) < offset:
            continue
        raw_bytes += group.raw_bytes
        if taken and (raw_bytes > bytes_max or records >= records_max):
            break
        taken.append(group)
        records += min(group.rows, max_offset(group) - offset + 1)
    return tuple(taken)


def first_row_group_at(footer: Footer, timestamp_ms: int) -> int | None:
    """The first row group with a record at `timestamp_ms` or later."""
    return next((group.index for group in footer.row_groups if max_timestamp_ms(group) >= timestamp_ms), None)
