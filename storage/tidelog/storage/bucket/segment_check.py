"""Checks one segment against its entry in the manifest: by its footer, in one range request; deep, by every byte.

The footer has its own checksum. It states the partition, the number of records and, for each row group, its place in
the object and its offsets and timestamps. A deep check reads the whole object a few row groups at a time, so memory
does not grow with its size. It checks the checksum of each row group, the offset of each record, and the sha256 of all
bytes, by which the manifest's history names the segment.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.parquet.parquet_format import MAGIC, Footer, RowGroup
from tidelog.storage.segments.segment_codec import decode_segment_rows, max_offset, min_offset, raw_bytes_of
from tidelog.storage.upkeep.segment_input import read_footer

SCAN_BYTES = 16 * 1024 * 1024
"""About this many stored bytes of row groups are read and decoded together."""


async def check_segment(store: ObjectStore, segment: Segment, *, deep: bool) -> None:
    """Raises `Corrupt`, which names the segment, if it is not as `segment` describes it; `NotFound` if it is
    missing."""
    footer = await read_footer(store, segment)
    if fault := footer_fault(segment, footer):
        raise Corrupt(segment.key, fault)
    if deep:
        await _scan(store, segment, footer)


def footer_fault(segment: Segment, footer: Footer) -> str | None:
    """Why a sound footer does not belong to the segment that the manifest describes; None if it does."""
    groups = footer.row_groups
    if (min_offset(groups[0]), max_offset(groups[-1])) != (segment.base_offset, segment.last_offset):
        return "has other offsets than its manifest says"
    if any(max_offset(one) >= min_offset(other) for one, other in pairwise(groups)):
        return "has row groups whose offsets overlap (inv. 4)"
    times = [group.bounds[1] for group in groups]
    spanned = min(low for low, _ in times), max(high for _, high in times)
    if spanned != (segment.min_timestamp_ms, segment.max_timestamp_ms):
        return "has other timestamps than its manifest says"
    return None


@dataclass(frozen=True)
class _Totals:
    """The sums over the records read so far."""

    records: int = 0
    raw_bytes: int = 0

    def plus(self, records: pa.Table) -> _Totals:
        return _Totals(self.records + records.num_rows, self.raw_bytes + raw_bytes_of(records))


async def _scan(store: ObjectStore, segment: Segment, footer: Footer) -> None:
    digest = hashlib.sha256()
    magic = (await store.get(segment.key, ByteRange(0, len(MAGIC)))).data
    if magic != MAGIC:
        raise Corrupt(segment.key, "does not begin as Parquet does")
    digest.update(magic)
    totals = _Totals()
    for groups in scan_groups(footer):
        start, end = groups[0].start, groups[-1].end
        data = (await store.get(segment.key, ByteRange(start, end - start))).data
        totals = await asyncio.to_thread(_decoded, segment.key, footer, groups, data, digest, totals)
    rest = footer.row_groups[-1].end  # indexes and the footer
    digest.update((await store.get(segment.key, ByteRange(rest))).data)
    found = replace(segment, records=totals.records, raw_bytes=totals.raw_bytes, sha256=digest.hexdigest())
    if found.sha256 != segment.sha256:
        raise Corrupt(segment.key, "is not the segment its manifest names: another sha256")
    if found != segment:
        raise Corrupt(segment.key, "has other totals than its manifest says")


def _decoded(
    key: str, footer: Footer, groups: Sequence[RowGroup], data: bytes, digest: hashlib._Hash, totals: _Totals
) -> _Totals:
    digest.update(data)
    return totals.plus(decode_segment_rows(key, footer, groups, memoryview(data)))


def scan_groups(footer: Footer) -> Iterator[Sequence[RowGroup]]:
    """Neighbouring row groups, about `SCAN_BYTES` at a time."""
    taken: list[RowGroup] = []
    for group in footer.row_groups:
        if taken and group.end - taken[0].start > SCAN_BYTES:
            yield taken
            taken = []
        taken.append(group)
    if taken:
        yield taken
