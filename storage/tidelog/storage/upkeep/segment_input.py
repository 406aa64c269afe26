"""A segment read from front to back in bounded memory: some row groups at a time, the next ones on their way meanwhile.

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
from tidelog.storage.parquet.parquet_format import Footer, RowGroup, footer_bytes
from tidelog.storage.segments.segment_codec import decode_segment_footer
from tidelog.storage.segments.segment_reader import FOOTER_TAIL_BYTES

RowGroups = Sequence[RowGroup]


@dataclass(frozen=True)
class SegmentEnd:
    """A footer, and all bytes of the object behind its last row group."""

    footer: Footer
    data: memoryview


async def read_footer(store: ObjectStore, segment: Segment) -> Footer:
    """One request, two for a footer of more than `FOOTER_TAIL_BYTES`. Raises `NotFound`, `Corrupt`, `Unavailable`."""
    return (await _read_tail(store, segment)).footer


async def read_end(store: ObjectStore, segment: Segment) -> SegmentEnd:
    """As `read_footer`, and a request more if what lies before the footer did not come with it."""
    tail = await _read_tail(store, segment)
    length = segment.size_bytes - tail.footer.row_groups[-1].end
    data = tail.data if length <= len(tail.data) else memoryview(await _last_bytes(store, segment, length))
    return SegmentEnd(tail.footer, data[len(data) - length :])


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
    """The bytes of each of `runs`, a request each, one of them ahead. Raises `NotFound`, `Unavailable`."""
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


async def _read_tail(store: ObjectStore, segment: Segment) -> SegmentEnd:
    """Its data are as many of the last bytes as came."""
    tail = await _last_bytes(store, segment, FOOTER_TAIL_BYTES)
    needed = footer_bytes(segment.key, tail)
    if len(tail) < needed <= segment.size_bytes:
        tail = await _last_bytes(store, segment, needed)
    footer = decode_segment_footer(segment.key, tail, segment.size_bytes)
    if footer.rows != segment.records:
        raise Corrupt(segment.key, f"has {footer.rows} records, its manifest says {segment.records}")
    return SegmentEnd(footer, memoryview(tail))


async def _last_bytes(store: ObjectStore, segment: Segment, length: int) -> bytes:
    stored = await store.get(segment.key, ByteRange(-length))
    if stored.info.size != segment.size_bytes:
        raise Corrupt(segment.key, f"has {stored.info.size} bytes, its manifest says {segment.size_bytes}")
    return stored.data
