"""Reads segments from front to back in bounded memory: some row groups at a time, the next ones ahead.

    reading = Reading(store, executor, bytes_max)
    async with aclosing(reading.rows(place, segment)) as tables:
        async for records in tables:                # STORED_SCHEMA, each of about `bytes_max`
            ...

All bytes of a segment pass through memory once and must match its sha256 in the manifest, so that a merge never copies
damaged or foreign records into a segment that passes for sound (`tidelog bucket attest`). The sha256 is known only
after the last rows, so a caller publishes nothing before the end. Each row group is checked by its own checksum before
it is decoded (`parquet_format`)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.parquet.parquet_format import (
    MAGIC,
    Footer,
    RowGroup,
    decode_footer,
    decode_rows,
    footer_bytes,
)
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, SegmentPlace, check_header
from tidelog.storage.upkeep.in_thread import in_thread

FOOTER_TAIL_BYTES = 64 * 1024
"""The first read of a footer takes this many bytes: enough for about 100 row groups."""

RowGroups = Sequence[RowGroup]


class _Digest(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class SegmentEnd:
    """A footer, and the last bytes of the object, at least those after the last row group."""

    footer: Footer
    data: memoryview

    def at_hand(self, start: int, end: int) -> memoryview | None:
        """Bytes ``[start, end)`` of the object, if `data` has them."""
        first = self.footer.object_bytes - len(self.data)
        return self.data[start - first : end - first] if start >= first else None


async def read_end(
    store: ObjectStore, place: SegmentPlace, segment: TopicSegment, bytes_min: int = FOOTER_TAIL_BYTES
) -> SegmentEnd:
    """The last `bytes_min` of `segment`, or more if its footer is larger: one or two requests. Raises `NotFound`,
    `Corrupt`, `Unavailable`."""
    data = await _last_bytes(store, segment, bytes_min)
    needed = footer_bytes(segment.key, data)
    if len(data) < needed <= segment.size_bytes:
        data = await _last_bytes(store, segment, needed)
    decode = partial(decode_footer, segment.key, SEGMENT_FLAVOR, data, segment.size_bytes)
    footer = await asyncio.to_thread(decode) if needed > FOOTER_TAIL_BYTES else decode()
    check_header(segment, place, footer)
    if len(data) < segment.size_bytes - footer.rows_end:
        data = await _last_bytes(store, segment, segment.size_bytes - footer.rows_end)
    return SegmentEnd(footer, data)


def stretches(groups: Iterable[RowGroup], bytes_max: int) -> Sequence[RowGroups]:
    """`groups` in runs of neighbours, each of at most `bytes_max` raw bytes or of one row group."""
    runs: list[list[RowGroup]] = []
    raw_bytes = 0
    for group in groups:
        raw_bytes += group.raw_bytes
        if not runs or runs[-1][-1].index + 1 != group.index or raw_bytes > bytes_max:
            runs.append([])
            raw_bytes = group.raw_bytes
        runs[-1].append(group)
    return runs


@dataclass(frozen=True)
class Reading:
    """How segments are read: `bytes_max` raw bytes at a time, decoded by `executor` (None: the event loop's default).
    One piece is decoded, and one more is fetched."""

    store: ObjectStore
    executor: Executor | None
    bytes_max: int

    async def rows(
        self, place: SegmentPlace, segment: TopicSegment, columns: Sequence[str] | None = None
    ) -> AsyncGenerator[pa.Table]:
        """All records of `segment`, in order: all columns, or those named. Raises `NotFound`, `Corrupt`,
        `Unavailable`."""
        end = await self.end(place, segment)
        digest = hashlib.sha256(MAGIC)
        async with aclosing(self._fetched(segment, end, end.footer.row_groups)) as fetched:
            async for groups, data in fetched:
                yield await in_thread(self.executor, _checked_rows, segment, end, groups, data, columns, digest)
        digest.update(end.data[len(end.data) - (segment.size_bytes - end.footer.rows_end) :])
        if digest.hexdigest() != segment.sha256:
            raise Corrupt(segment.key, "is not the segment its manifest names: another sha256")

    async def some_rows(
        self, segment: TopicSegment, end: SegmentEnd, groups: RowGroups
    ) -> AsyncGenerator[tuple[RowGroups, pa.Table]]:
        """The records of some row groups, with the groups that hold them. Only their own checksums are checked."""
        async with aclosing(self._fetched(segment, end, groups)) as fetched:
            async for run, data in fetched:
                yield run, await in_thread(self.executor, _rows, segment, end, run, data)

    async def end(self, place: SegmentPlace, segment: TopicSegment) -> SegmentEnd:
        """A small segment arrives whole, with its end."""
        whole = segment.size_bytes <= self.bytes_max
        return await read_end(self.store, place, segment, segment.size_bytes if whole else FOOTER_TAIL_BYTES)

    async def _fetched(
        self, segment: TopicSegment, end: SegmentEnd, groups: RowGroups
    ) -> AsyncGenerator[tuple[RowGroups, memoryview]]:
        """The bytes of `groups`, one request for each stretch of them, one stretch ahead."""
        runs = stretches(groups, self.bytes_max)
        ahead: asyncio.Task[memoryview] | None = None
        try:
            for at, run in enumerate(runs):
                data = await (ahead or self._bytes(segment, end, run))
                ahead = asyncio.create_task(self._bytes(segment, end, runs[at + 1])) if at + 1 < len(runs) else None
                yield run, data
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def _bytes(self, segment: TopicSegment, end: SegmentEnd, run: RowGroups) -> memoryview:
        start, stop = run[0].start, run[-1].end
        at_hand = end.at_hand(start, stop)
        if at_hand is not None:
            return at_hand
        return memoryview((await self.store.get(segment.key, ByteRange(start, stop - start))).data)


def _checked_rows(
    segment: TopicSegment,
    end: SegmentEnd,
    groups: RowGroups,
    data: memoryview,
    columns: Sequence[str] | None,
    digest: _Digest,
) -> pa.Table:
    digest.update(data)
    return _rows(segment, end, groups, data, columns)


def _rows(
    segment: TopicSegment,
    end: SegmentEnd,
    groups: RowGroups,
    data: memoryview,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    return decode_rows(segment.key, SEGMENT_FLAVOR, end.footer, groups, data, columns)


async def _last_bytes(store: ObjectStore, segment: TopicSegment, length: int) -> memoryview:
    stored = await store.get(segment.key, ByteRange(-length))
    if stored.info.size != segment.size_bytes:
        raise Corrupt(segment.key, f"has {stored.info.size} bytes, its manifest says {segment.size_bytes}")
    return memoryview(stored.data)
