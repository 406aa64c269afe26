"""Checks one segment against what its manifest says of it: by its footer alone, in one range request, or by every byte.

The footer has a checksum of its own and says whose records these are, how many, and for each row group where it lies
and which offsets and times it spans. Deep, the whole object is read a few row groups at a time, so that memory does not
follow its size: every row group's checksum, every record's offset, and the sha256 of all bytes, which the manifest's
history is made of.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.parquet.parquet_format import MAGIC, Footer, RowGroup, footer_bytes
from tidelog.storage.segments.segment_codec import decode_segment_footer, decode_segment_rows, max_offset, min_offset

FOOTER_TAIL_BYTES = 64 * 1024
"""How much of a segment's end is read for its footer at first."""
SCAN_BYTES = 16 * 1024 * 1024
"""Row groups that are read and decoded together take about so many stored bytes."""


async def check_segment(store: ObjectStore, segment: Segment, *, deep: bool) -> None:
    """Raises `Corrupt`, naming it, if the segment is not what `segment` says; `NotFound` if it is not there."""
    tail = await _last_bytes(store, segment, FOOTER_TAIL_BYTES)
    needed = footer_bytes(segment.key, tail)
    if len(tail) < needed <= segment.size_bytes:
        tail = await _last_bytes(store, segment, needed)
    footer = await asyncio.to_thread(decode_segment_footer, segment.key, tail, segment.size_bytes)
    if fault := footer_fault(segment, footer):
        raise Corrupt(segment.key, fault)
    if deep:
        await _scan(store, segment, footer)


def footer_fault(segment: Segment, footer: Footer) -> str | None:
    """Why a sound footer is not that of the segment the manifest means; None if it is."""
    groups = footer.row_groups
    if footer.rows != segment.records:
        return f"has {footer.rows} records, its manifest says {segment.records}"
    if (min_offset(groups[0]), max_offset(groups[-1])) != (segment.base_offset, segment.last_offset):
        return "has other offsets than its manifest says"
    if any(max_offset(one) >= min_offset(other) for one, other in pairwise(groups)):
        return "has row groups whose offsets overlap (inv. 4)"
    times = [group.bounds[1] for group in groups]
    spanned = min(low for low, _ in times), max(high for _, high in times)
    if spanned != (segment.min_timestamp_ms, segment.max_timestamp_ms):
        return "has other timestamps than its manifest says"
    return None


async def _last_bytes(store: ObjectStore, segment: Segment, length: int) -> bytes:
    stored = await store.get(segment.key, ByteRange(-length))
    if stored.info.size != segment.size_bytes:
        raise Corrupt(segment.key, f"has {stored.info.size} bytes, its manifest says {segment.size_bytes}")
    return stored.data


# ---- every byte


@dataclass(frozen=True)
class _Found:
    """What the records read so far come to."""

    records: int = 0
    raw_bytes: int = 0

    def plus(self, records: pa.Table) -> _Found:
        raw = sum(pc.sum(pc.binary_length(records[name])).as_py() or 0 for name in ("key", "value"))
        return _Found(self.records + records.num_rows, self.raw_bytes + raw)


async def _scan(store: ObjectStore, segment: Segment, footer: Footer) -> None:
    digest = hashlib.sha256()
    magic = (await store.get(segment.key, ByteRange(0, len(MAGIC)))).data
    if magic != MAGIC:
        raise Corrupt(segment.key, "does not begin as Parquet does")
    digest.update(magic)
    found = _Found()
    for groups in scan_groups(footer):
        start, end = groups[0].start, groups[-1].end
        data = (await store.get(segment.key, ByteRange(start, end - start))).data
        found = await asyncio.to_thread(_decoded, segment.key, footer, groups, data, digest, found)
    rest = footer.row_groups[-1].end  # indexes and the footer
    digest.update((await store.get(segment.key, ByteRange(rest))).data)
    said = replace(segment, records=found.records, raw_bytes=found.raw_bytes, sha256=digest.hexdigest())
    if said.sha256 != segment.sha256:
        raise Corrupt(segment.key, "is not the segment its manifest names: another sha256")
    if said != segment:
        raise Corrupt(segment.key, "is not what its manifest says of it")


def _decoded(
    key: str, footer: Footer, groups: Sequence[RowGroup], data: bytes, digest: hashlib._Hash, found: _Found
) -> _Found:
    digest.update(data)
    return found.plus(decode_segment_rows(key, footer, groups, memoryview(data)))


def scan_groups(footer: Footer) -> Iterator[Sequence[RowGroup]]:
    """Row groups that are neighbours, about `SCAN_BYTES` of them at a time."""
    taken: list[RowGroup] = []
    for group in footer.row_groups:
        if taken and group.end - taken[0].start > SCAN_BYTES:
            yield taken
            taken = []
        taken.append(group)
    if taken:
        yield taken
