"""Reads segments from front to back in bounded memory: some row groups at a time, the next ones ahead.

    reading = Reading(store, executor, bytes_max)
    async with aclosing(reading.rows(segment)) as tables:
        async for first_row, records in tables:     # STORED_SCHEMA, each of about `bytes_max`
            ...

All bytes of a segment pass through memory once and must match its sha256 in the manifest, so that a merge never copies
damaged or foreign records into a segment that passes for sound (`tidelog bucket attest`). The sha256 is known only
after the last rows, so a caller publishes nothing before the end. Each row group is checked by its own checksum before
it is decoded (`parquet_format`)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.in_flight import in_thread
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.parquet.parquet_format import MAGIC, RowGroup
from tidelog.storage.parquet.row_decoding import decode_rows
from tidelog.storage.segments.segment_tail import SegmentTail, read_tail
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR

T = TypeVar("T")
RowGroups = Sequence[RowGroup]
Take = Callable[[SegmentTail, int, RowGroups, memoryview], T]
"""Takes neighbouring row groups, with the number of their first row and their bytes; it is called in a thread."""


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

    def rows(self, segment: TopicSegment, columns: Sequence[str] | None = None) -> AsyncGenerator[tuple[int, pa.Table]]:
        """All records of `segment`, in order: all columns, or those named; with each table the number of its first row.
        Raises like `taken`."""

        def decoded(tail: SegmentTail, _: int, run: RowGroups, data: memoryview) -> pa.Table:
            return decode_rows(segment.key, SEGMENT_FLAVOR, tail.footer, run, data, columns)

        return self.taken(segment, decoded)

    async def taken(
        self, segment: TopicSegment, take: Take[T], needed: Callable[[int, int], bool] | None = None
    ) -> AsyncGenerator[tuple[int, T]]:
        """The results of `take` for row groups of `segment`, in order, with the number of the first row of each.
        `needed`: row groups of which it needs no row are not read, and then the sha256 is not compared. Raises
        `NotFound`, `Corrupt`, `Unavailable`."""
        whole = segment.size_bytes <= self.bytes_max  # a small segment arrives with its footer
        tail = await read_tail(self.store, segment, segment.size_bytes if whole else 0)
        groups, ends = tail.footer.row_groups, list(accumulate(group.rows for group in tail.footer.row_groups))
        chosen = [group for group, end in zip(groups, ends, strict=True) if not needed or needed(end - group.rows, end)]
        digest = hashlib.sha256(MAGIC)

        def checked(first_row: int, run: RowGroups, data: memoryview) -> T:
            digest.update(data)
            return take(tail, first_row, run, data)

        async with aclosing(self._fetched(tail, chosen)) as fetched:
            async for run, data in fetched:
                first_row = ends[run[0].index] - run[0].rows
                yield first_row, await in_thread(self.executor, checked, first_row, run, data)
        if len(chosen) < len(groups):
            return
        digest.update(await tail.read(self.store, tail.footer.rows_end, segment.size_bytes))
        if digest.hexdigest() != segment.sha256:
            raise Corrupt(segment.key, "is not the segment its manifest names: another sha256")

    async def _fetched(self, tail: SegmentTail, groups: RowGroups) -> AsyncGenerator[tuple[RowGroups, memoryview]]:
        """The bytes of `groups`, one request for each stretch of them, one stretch ahead."""
        runs = stretches(groups, self.bytes_max)
        ahead: asyncio.Task[memoryview] | None = None
        try:
            for at, run in enumerate(runs):
                data = await (ahead or self._bytes(tail, run))
                ahead = asyncio.create_task(self._bytes(tail, runs[at + 1])) if at + 1 < len(runs) else None
                yield run, data
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def _bytes(self, tail: SegmentTail, run: RowGroups) -> memoryview:
        return await tail.read(self.store, run[0].start, run[-1].end)
