"""Reads segments for tools: checks every byte of one against its entry in the manifest (`check_segment`), describes one
that no list describes (`described`), and tells whether an upload holds records that no log has (`records_beyond`).

`check_segment` reads a few row groups at a time, so memory does not grow with the size of the object. It checks the
footer and its header, the checksum of each row group and of each page, the partition and offset of each record against
the spans, and the sha256 of all bytes, by which the manifest's history names the segment."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import topic_id_of_list
from tidelog.storage.manifests.shard_values import EMPTY, SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState, cold_ends_in
from tidelog.storage.object_store import ByteRange, ObjectInfo, ObjectReads, ObjectStore
from tidelog.storage.parquet.page_map import is_sound
from tidelog.storage.parquet.parquet_format import MAGIC, Footer, RowGroup, decode_footer, footer_bytes, parsing
from tidelog.storage.parquet.row_decoding import decode_parquet, decode_rows
from tidelog.storage.segments.segment_tail import SegmentTail, read_tail
from tidelog.storage.segments.topic_segment import (
    SEGMENT_FLAVOR,
    SegmentPlace,
    decode_place,
    max_timestamp_ms,
    min_timestamp_ms,
    order_fault,
    sha256_of,
)
from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL

SCAN_BYTES = 16 * 1024 * 1024
"""About this many stored bytes of row groups are read and decoded together."""
TAIL_BYTES = 64 * 1024
"""The part of an object's end that is read first. Most footers fit."""


async def read_footer(store: ObjectStore, key: str) -> Footer:
    """The footer of a segment: one request, two for a large footer. Raises `NotFound`, `Corrupt`, `NewerFormat`."""
    stored = await store.get(key, ByteRange(-TAIL_BYTES))
    needed = footer_bytes(key, stored.data)
    if len(stored.data) < needed <= stored.info.size:
        stored = await store.get(key, ByteRange(-needed))
    return decode_footer(key, SEGMENT_FLAVOR, stored.data, stored.info.size)


async def ends_of(store: ObjectStore, key: str) -> Mapping[int, int]:
    """For each partition in the segment or list `key`, the offset after its last record. Raises `NotFound`, `Corrupt`,
    `NewerFormat`."""
    if topic_id_of_list(key):
        return cold_ends_in(key, (await store.get(key)).data)
    _, spans = decode_place(key, await read_footer(store, key))
    return {partition: last_offset + 1 for partition, _, last_offset, _ in spans}


async def records_beyond(
    store: ObjectStore, key: str, state: TopicState | None, wal_ends: Mapping[int, int] | None = None
) -> bool:
    """Whether the segment or list `key` holds records beyond the end of a partition, by the manifest and by the
    write-ahead log. Raises `Corrupt`, `NewerFormat`, `NotFound`.

    A crash leaves no orphan with records beyond both, because uploaded records stay in the WAL until a manifest names
    them: then the manifest that named it is lost, unless the WAL has grown meanwhile."""
    for number, end in (await ends_of(store, key)).items():
        if end > max((state.partition(number) if state else EMPTY).cold_end, (wal_ends or {}).get(number, 0)):
            return True
    return False


async def described(store: ObjectStore, place: SegmentPlace, info: ObjectInfo) -> TopicSegment | None:
    """The segment that was listed as `info`, read whole; None if it is not a sound segment of `place`. Its run is
    unknown, and counts as archived when it was written. Raises `NewerFormat`."""
    try:
        data = (await store.get(info.key)).data
        return await asyncio.to_thread(_segment_of, place, info, data)
    except (Corrupt, NotFound):
        return None


async def check_segment(store: ObjectReads, segment: TopicSegment) -> None:
    """Raises `Corrupt`, which names the segment, if it is not as `segment` describes it; `NewerFormat`; `NotFound` if
    it is missing."""
    tail = await read_tail(store, segment)
    groups = tail.footer.row_groups
    if (min_timestamp_ms(groups), max_timestamp_ms(groups)) != (segment.min_timestamp_ms, segment.max_timestamp_ms):
        raise Corrupt(segment.key, "it has other timestamps than its manifest says")
    if await _scanned(store, segment, tail) != segment.sha256:
        raise Corrupt(segment.key, "it is not the segment that its manifest names: another sha256")


def size_text(segment: TopicSegment, size_bytes: int) -> str:
    return f"has {size_bytes} bytes, its manifest says {segment.size_bytes}"


async def _scanned(store: ObjectReads, segment: TopicSegment, tail: SegmentTail) -> str:
    """The sha256 of the object, whose records are checked."""
    footer, digest, order = tail.footer, hashlib.sha256(), RowOrder(segment.key, segment.spans)
    magic = await tail.read(store, 0, len(MAGIC))
    if magic != MAGIC:
        raise Corrupt(segment.key, "does not begin as Parquet does")
    digest.update(magic)
    for groups in scan_groups(footer):
        data = await tail.read(store, groups[0].start, groups[-1].end)
        await asyncio.to_thread(_take, segment.key, footer, groups, data, digest, order)
    digest.update(await tail.read(store, footer.rows_end, footer.object_bytes))  # indexes and the footer
    order.end()
    return digest.hexdigest()


def _take(
    key: str, footer: Footer, groups: Sequence[RowGroup], data: memoryview, digest: hashlib._Hash, order: RowOrder
) -> None:
    digest.update(data)
    order.take(decode_rows(key, SEGMENT_FLAVOR, footer, groups, data))
    for group in groups:
        _check_page_map(key, footer, group, data[group.start - groups[0].start : group.end - groups[0].start])


def _check_page_map(key: str, footer: Footer, group: RowGroup, data: memoryview) -> None:
    pages = footer.pages_of(key, group)
    with parsing(key):
        sound = pages is None or is_sound(pages, footer.metadata, group.index, data, group.start)
    if not sound:
        raise Corrupt(key, f"its map of pages is not that of row group {group.index}")


class RowOrder:
    """Whether rows, taken in parts, are those that `spans` describe."""

    def __init__(self, key: str, spans: Sequence[SegmentSpan]) -> None:
        self._key = key
        self._spans = spans
        self._at = 0  # the span of the next row
        self._row = 0  # the row in that span
        self._last_offset = -1  # the offset of the row before it in that span

    def take(self, records: pa.Table) -> None:
        """The next rows. Raises `Corrupt`."""
        offsets = records["offset"].to_numpy()
        parts: list[SegmentSpan] = []
        row = 0
        while row < records.num_rows:
            if self._at == len(self._spans):
                raise Corrupt(self._key, "it has more rows than its manifest says")
            span = self._spans[self._at]
            count = min(records.num_rows - row, span.records - self._row)
            parts.append(self._part(span, int(offsets[row]), int(offsets[row + count - 1]), count))
            row += count
        if fault := order_fault(parts, records):
            raise Corrupt(self._key, fault)

    def end(self) -> None:
        """All rows were taken. Raises `Corrupt`."""
        if self._at != len(self._spans):
            raise Corrupt(self._key, "it has fewer rows than its manifest says")

    def _part(self, span: SegmentSpan, first: int, last: int, count: int) -> SegmentSpan:
        """The next `count` rows of `span`, which begin and end at these offsets, if they may."""
        begins, ends = self._row == 0, self._row + count == span.records
        wrong = first != span.base_offset if begins else first <= self._last_offset
        if wrong or (ends and last != span.last_offset):
            raise Corrupt(self._key, f"its records of partition {span.partition} are not those of its span")
        self._row, self._last_offset = (0, -1) if ends else (self._row + count, last)
        self._at += ends
        return SegmentSpan(span.partition, first, last, count, 0)


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


def _segment_of(place: SegmentPlace, info: ObjectInfo, data: bytes) -> TopicSegment:
    """Raises `Corrupt`."""
    footer, records = decode_parquet(info.key, SEGMENT_FLAVOR, data)
    found, stated = decode_place(info.key, footer)
    spans, row = [], 0
    for partition, base_offset, last_offset, count in stated:
        raw_bytes = _raw_bytes(records.slice(row, count))
        spans.append(SegmentSpan(partition, base_offset, last_offset, count, raw_bytes))
        row += count
    if found != place or not spans:
        raise Corrupt(info.key, "belongs to another topic or shard than its name says")
    if fault := order_fault(spans, records):
        raise Corrupt(info.key, fault)
    times = min_timestamp_ms(footer.row_groups), max_timestamp_ms(footer.row_groups)
    level = 0 if footer.index_crc32 is None else FINAL_LEVEL  # with an index of pages, it is not merged again
    return TopicSegment(info.key, 0, level, len(data), sha256_of(data), *times, info.modified_ms, tuple(spans))


def _raw_bytes(records: pa.Table) -> int:
    return sum(pc.sum(pc.binary_length(records[name])).as_py() or 0 for name in ("key", "value"))
