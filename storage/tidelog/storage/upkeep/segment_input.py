"""Reads a segment from front to back in bounded memory: some row groups at a time, the next ones ahead.

footer = await read_footer(store, segment)
async for groups, data in read_stretches(store, segment, stretches(footer.row_groups, bytes_max)):
    ...                                        # groups: neighbours in the object; data: their bytes, unchecked
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.parquet.parquet_format import Footer, RowGroup
from tidelog.storage.segments.segment_reader import SegmentTail, read_last_bytes, read_tail

RowGroups = Sequence[RowGroup]


@dataclass(frozen=True)
class SegmentEnd:
    """A footer, and all bytes of the object after its last row group."""

    footer: Footer
    data: memoryview


async def read_footer(store: ObjectStore, segment: Segment) -> Footer:
    """One request, two for a large footer. Raises `NotFound`, `Corrupt`, `Unavailable`."""
    return (await _checked_tail(store, segment)).footer


async def read_end(store: ObjectStore, segment: Segment) -> SegmentEnd:
    """Like `read_footer`, with one more request if the bytes before the footer were not read with it."""
    tail = await _checked_tail(store, segment)
    length = segment.size_bytes - tail.footer.row_groups[-1].end
    data = tail.data if length <= len(tail.data) else await read_last_bytes(store, segment, length)
    return SegmentEnd(tail.footer, memoryview(data)[len(data) - length :])


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


async def read_stretches(
    store: ObjectStore, segment: Segment, runs: Sequence[RowGroups]
) -> AsyncGenerator[tuple[RowGroups, memoryview]]:
    """The bytes of each of `runs`, one request each, one run ahead. Raises `NotFound`, `Unavailable`."""
    ahead: asyncio.Task[memoryview] | None = None
    try:
        for at, run in enumerate(runs):
            data = await (ahead or _read(store, segment, run))
            ahead = asyncio.create_task(_read(store, segment, runs[at + 1])) if at + 1 < len(runs) else None
            yield run, data
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)


async def _read(store: ObjectStore, segment: Segment, run: RowGroups) -> memoryview:
    start, end = run[0].start, run[-1].end
    return memoryview((await store.get(segment.key, ByteRange(start, end - start))).data)


async def _checked_tail(store: ObjectStore, segment: Segment) -> SegmentTail:
    tail = await read_tail(store, segment)
    if tail.footer.rows != segment.records:
        raise Corrupt(segment.key, f"has {tail.footer.rows} records, its manifest says {segment.records}")
    return tail
