"""Reads a span of a segment from an offset on, by ranges: the footer once, then only the needed row groups.

    reader = SegmentReader(store)
    records = await reader.read(found, offset, bytes_max=1 << 20)      # RECORD_SCHEMA, from `offset` on

A cold read takes two requests: one for the footer and one for the row groups, which are neighbours in the object. If
the footer is in the cache, it takes one; a small segment arrives whole with its footer. `span_groups` decides purely
which row groups are needed.

A lookup fetches a row group from its beginning to the page that holds the record, and decodes only the wanted part: a
few records take a page of values, and the rows of other partitions are left out (`segment_slice`). What a small read
fetched is kept for a while as it is stored, because the next read is usually in it too; a second read that needs more
fetches the rest of the row group. Segments of earlier programs have no map of their pages, so of them a row group is
fetched whole.

Small partitions share row groups, and a consumer of a whole topic reads them one after the other. So when a second
partition is read in a row group that is still in memory, the whole row group is decoded and kept, and its other
partitions are cut out of it. That costs as much as four small reads.

Everything is checked (`parquet_format`). Decoding runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa
from cachetools import LRUCache

from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.page_map import GroupPages
from tidelog.storage.parquet.parquet_format import Footer
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_slice import (
    bytes_to_read,
    cut_span,
    decode_group,
    decode_span,
    offset_by_timestamp,
)
from tidelog.storage.segments.segment_tail import SegmentTail, read_tail
from tidelog.storage.segments.span_groups import (
    GroupBounds,
    SpanGroup,
    decoded_bytes,
    groups_since,
    plan_groups,
    plan_whole_groups,
)
from tidelog.storage.segments.stored_groups import StoredGroups, Wanted, WholeGroups
from tidelog.storage.single_flight import SingleFlight

FOOTER_CACHE_BYTES = 32 * 1024 * 1024
READ_BYTES_MAX = 16 * 1024 * 1024
READ_RECORDS_MAX = 2**63 - 1
ROW_GROUP_CACHE_BYTES = 8 * 1024 * 1024
DECODED_CACHE_BYTES = 24 * 1024 * 1024
"""Decoded row groups that partitions share: two of the usual size."""
READ_BY_MAX = 1_000
"""Row groups whose last reader is remembered."""


_Place: TypeAlias = tuple[str, int]
"""A row group: the key of its segment, and its number."""


class SegmentReader:
    """Shared by all readers of a store. Raises `NotFound` (the segment was merged or expired), `Corrupt`,
    `Unavailable`."""

    def __init__(self, store: ObjectStore, *, footer_cache_bytes: int = FOOTER_CACHE_BYTES) -> None:
        self._store = store
        # Segments never change, so neither cache goes stale.
        self.footers: LRUCache[str, Footer] = LRUCache(footer_cache_bytes, _stored_bytes)
        self.row_groups: LRUCache[_Place, memoryview] = LRUCache(ROW_GROUP_CACHE_BYTES, len)
        self.decoded: LRUCache[_Place, pa.Table] = LRUCache(DECODED_CACHE_BYTES, _decoded_bytes)
        self._read_by: LRUCache[_Place, int] = LRUCache(READ_BY_MAX)
        self._tails: SingleFlight[str, SegmentTail] = SingleFlight()
        self._gets: SingleFlight[tuple[str, int, int, int], memoryview] = SingleFlight()

    async def read(
        self, found: FoundSpan, offset: int, *, bytes_max: int = READ_BYTES_MAX, records_max: int = READ_RECORDS_MAX
    ) -> pa.Table:
        """Records (`RECORD_SCHEMA`) of the span from `offset` on: those of the row group that holds it, and of the
        following ones while all together take at most `bytes_max` uncompressed. Of a row group much larger than that,
        only a part may be returned. The caller must cut the result at its bounds. An empty table means that the span
        has no records from `offset` on."""
        tail = await self._tail(found.segment)
        wanted = Wanted(found.span.partition, offset, bytes_max, records_max)
        first_group = 0
        while groups := plan_groups(tail.footer, found, offset, bytes_max, records_max, first_group):
            records = await self._records(tail, groups, wanted)
            if records.num_rows:
                return records
            first_group = groups[-1].group.index + 1  # compaction removed the records from `offset` on in this one
        return RECORD_SCHEMA.empty_table()

    async def read_whole(self, found: FoundSpan, offset: int, bounds: GroupBounds) -> WholeGroups | None:
        """The row groups with the records of the span from `offset` on, as they are stored and checked, as long as they
        belong to the span alone and are within `bounds`. None if not even the first one does."""
        tail = await self._tail(found.segment)
        groups = plan_whole_groups(tail.footer, found, offset, bounds)
        if not groups:
            return None
        stored = await self._stored(tail, groups, keep=False)
        whole = WholeGroups(stored, groups, offset, sum(decoded_bytes(each, found) for each in groups))
        await asyncio.to_thread(whole.check, found.span.partition)
        return whole

    def whole_bytes(self, found: FoundSpan, offset: int, bounds: GroupBounds) -> int:
        """The stored bytes that `read_whole` returns; 0 if there are none, or the footer is not cached."""
        if (footer := self.footers.get(found.segment.key)) is None:
            return 0
        groups = plan_whole_groups(footer, found, offset, bounds)
        return groups[-1].group.end - groups[0].group.start if groups else 0

    def end_of_read(self, found: FoundSpan, offset: int, *, bytes_max: int) -> int | None:
        """The offset after the row groups that `read` returns from `offset` on, or a later one; None if the footer is
        not cached."""
        if (footer := self.footers.get(found.segment.key)) is None:
            return None
        groups = plan_groups(footer, found, offset, bytes_max, READ_RECORDS_MAX)
        return groups[-1].last_offset + 1 if groups else found.span.next_offset

    async def find_offset_by_timestamp(self, found: FoundSpan, timestamp_ms: int, offset: int = 0) -> int | None:
        """The first offset of the span, from `offset` on, with a timestamp of `timestamp_ms` or later, as in Kafka;
        None if it has none. Timestamps need not ascend."""
        tail = await self._tail(found.segment)
        wanted = Wanted(found.span.partition, offset, 1, 1)
        for each in groups_since(tail.footer, found, timestamp_ms):
            if each.last_offset >= offset:
                stored = await self._stored(tail, (each,), keep=True)
                first = await asyncio.to_thread(offset_by_timestamp, stored, each, wanted, timestamp_ms)
                if first is not None:
                    return first
        return None

    async def _records(self, tail: SegmentTail, groups: Sequence[SpanGroup], wanted: Wanted) -> pa.Table:
        only = groups[0] if len(groups) == 1 else None
        if only and only.shared:
            rows = await self._shared_rows(tail, only, wanted.partition)
            if rows is not None:
                return await asyncio.to_thread(cut_span, tail.key, rows, only, wanted)
        keep = only is not None and (only.shared or wanted.is_part_of(only))
        if only is None or (pages := _pages_for(tail, only, wanted)) is None:
            stored = await self._stored(tail, groups, keep=keep)
        else:
            length = bytes_to_read(tail.footer, pages, only, wanted)
            stored = replace(await self._stored(tail, groups, keep=keep, length=length), pages=pages)
        return await asyncio.to_thread(decode_span, stored, groups, wanted)

    async def _shared_rows(self, tail: SegmentTail, each: SpanGroup, partition: int) -> pa.Table | None:
        """All rows of a row group, if another partition of it was read lately."""
        place = (tail.key, each.group.index)
        last, self._read_by[place] = self._read_by.get(place, partition), partition
        rows = self.decoded.get(place)
        if rows is not None:
            return rows
        if last == partition or place not in self.row_groups:
            return None
        stored = await self._stored(tail, (each,), keep=True)
        rows = await asyncio.to_thread(decode_group, stored, each)
        if rows.nbytes <= self.decoded.maxsize:
            self.decoded[place] = rows
        return rows

    async def _tail(self, segment: TopicSegment) -> SegmentTail:
        if footer := self.footers.get(segment.key):
            return SegmentTail(segment.key, footer, memoryview(b""))
        tail = await self._tails.run(segment.key, lambda: read_tail(self._store, segment))
        if _stored_bytes(tail.footer) <= self.footers.maxsize:
            self.footers[segment.key] = tail.footer
        return tail

    async def _stored(
        self, tail: SegmentTail, groups: Sequence[SpanGroup], *, keep: bool, length: int | None = None
    ) -> StoredGroups:
        """The bytes of `groups`, which are neighbours. `keep`: also for the next read. `length`: at least so many of
        the first ones; None: all. A second read of a row group that needs more gets all that is left of it."""
        start, end = groups[0].group.start, groups[-1].group.end
        place = (tail.key, groups[0].group.index)
        held = self.row_groups.get(place, memoryview(b"")) if len(groups) == 1 else memoryview(b"")
        if len(held) >= (length or end - start):
            return StoredGroups(tail.key, tail.footer, held, start)
        end = start + length if length and not held else end
        first = start + len(held)
        if not keep:
            data = await tail.read(self._store, first, end)
        else:
            data = await self._gets.run((*place, first, end), lambda: tail.read(self._store, first, end))
        data = memoryview(b"".join((held, data))) if held else data
        if keep and len(self.row_groups.get(place, b"")) < len(data) <= self.row_groups.maxsize:
            self.row_groups[place] = data
        return StoredGroups(tail.key, tail.footer, data, start)


def _pages_for(tail: SegmentTail, each: SpanGroup, wanted: Wanted) -> GroupPages | None:
    """The pages of a row group, if they are known, and a part of them is enough for a read."""
    return tail.footer.pages_of(tail.key, each.group) if wanted.is_part_of(each) else None


def _decoded_bytes(rows: pa.Table) -> int:
    return rows.nbytes


def _stored_bytes(footer: Footer) -> int:
    return footer.object_bytes - footer.start
