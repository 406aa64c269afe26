"""A lookup in a segment with a map of its pages fetches and checks only the pages that it needs."""

from __future__ import annotations

import random
from contextlib import suppress

import pyarrow as pa
import pytest
from tests.storage.record_tables import Payload, record_table
from tests.storage.topic_segments import made_segment, mapped, span_in

from tidelog.storage.bucket.segment_reading import check_segment
from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.parquet.column_pages import ColumnPage
from tidelog.storage.parquet.page_map import GroupPages
from tidelog.storage.parquet.parquet_format import Footer, decode_footer
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

OFFSETS = [offset for offset in range(1_000, 25_000) if offset % 7]
"""Compaction removed some records."""
VALUE = 4
"""The column of values."""


def value(offset: int) -> bytes:
    return random.Random(offset).randbytes(60) * 6


def plain(offset: int) -> Payload:
    return None, value(offset), None


def full(offset: int) -> Payload:
    """Keys take several pages, too, and every second record has headers."""
    headers = [{"key": "h", "value": b"%d" % offset}] if offset % 2 else None
    return b"key %d " % offset * 10, None if offset % 11 == 0 else value(offset), headers


def repeated(offset: int) -> Payload:
    """Keys have a dictionary."""
    return b"key %d" % (offset % 9), value(offset), None


def removed(offset: int) -> Payload:
    """No record has a value."""
    return b"key %d " % offset * 20, None, None


KINDS = {"plain": plain, "full": full, "repeated": repeated, "removed": removed}
TABLES = {name: record_table(OFFSETS, [kind(offset) for offset in OFFSETS]) for name, kind in KINDS.items()}
SMALL = record_table(range(700))


def segment_of(table: pa.Table, *, alone: bool = True) -> EncodedSegment:
    """A segment of two row groups; or of one that other partitions share."""
    parts = {4: table} if alone else {2: SMALL, 4: table, 5: SMALL}
    rows = sum(part.num_rows for part in parts.values())
    return mapped(made_segment(parts, ends=[rows // 2, rows] if alone else [rows]))


MADE = {name: segment_of(table) for name, table in TABLES.items()}


async def stored(made: EncodedSegment, body: bytes | None = None) -> CountingObjectStore:
    store = CountingObjectStore(MemoryObjectStore())
    await store.create(made.segment.key, made.body if body is None else body)
    return store


def footer_of(made: EncodedSegment) -> Footer:
    return decode_footer(made.segment.key, SEGMENT_FLAVOR, made.body, len(made.body))


def pages_of(made: EncodedSegment, group: int) -> GroupPages:
    footer = footer_of(made)
    pages = footer.pages_of(made.segment.key, footer.row_groups[group])
    assert pages is not None
    return pages


def page_of(made: EncodedSegment, offset: int) -> tuple[int, ColumnPage]:
    """The row group with `offset`, and the page with its value."""
    group, row = divmod(OFFSETS.index(offset), len(OFFSETS) // 2)
    return group, next(page for page in pages_of(made, group)[VALUE] if page.next_row > row)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "among neighbours"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_lookup_finds_the_record_and_those_after_it(kind: str, alone: bool) -> None:
    made = MADE[kind] if alone else segment_of(TABLES[kind], alone=False)
    store, found, draw = await stored(made), span_in(made.segment, 4), random.Random(1)
    for _ in range(25):
        offset, records_max = draw.randint(0, OFFSETS[-1]), draw.choice([1, 100, 5_000])
        records = await SegmentReader(store).read(found, offset, records_max=records_max)
        first = next(row for row, there in enumerate(OFFSETS) if there >= offset)
        assert records.equals(TABLES[kind].slice(first, records.num_rows))
        assert records.num_rows >= min(records_max, len(OFFSETS) - first, 1)


async def test_a_lookup_takes_one_request_that_ends_with_its_page() -> None:
    made = MADE["plain"]
    store, found = await stored(made), span_in(made.segment, 4)
    await SegmentReader(store).read(found, 1_000, records_max=1)
    reader = SegmentReader(store)
    await reader._tail(found.segment)
    for offset in (OFFSETS[5_000], OFFSETS[-3]):
        before = store.usage()
        await reader.read(found, offset, records_max=1)
        spent = store.usage() - before
        upper = offset - footer_of(made).row_groups[OFFSETS.index(offset) // (len(OFFSETS) // 2)].bounds[1][0]
        group, _ = page_of(made, offset)
        pages = pages_of(made, group)[VALUE]
        last = next((page for page in pages if page.next_row > upper), pages[-1])
        assert spent.requests() == 1
        assert spent.total().received_bytes == last.end


async def test_a_second_read_of_a_row_group_fetches_only_the_rest() -> None:
    made = MADE["plain"]
    store, found = await stored(made), span_in(made.segment, 4)
    reader, whole = SegmentReader(store), footer_of(made).row_groups[0]
    await reader._tail(found.segment)
    before = store.usage()
    for offset in (OFFSETS[3_000], OFFSETS[3_001], OFFSETS[9_000], OFFSETS[1], OFFSETS[0]):
        records = await reader.read(found, offset, records_max=1)
        assert records["offset"][0].as_py() == offset
    spent = store.usage() - before
    assert spent.requests() == 2
    assert spent.total().received_bytes == whole.end - whole.start


async def test_a_reader_from_the_beginning_fetches_each_row_group_once() -> None:
    made = MADE["plain"]
    store, found = await stored(made), span_in(made.segment, 4)
    reader, offset, parts = SegmentReader(store), 0, []
    while (records := await reader.read(found, offset, records_max=50)).num_rows:
        parts.append(records)
        offset = records["offset"][-1].as_py() + 1
    assert pa.concat_tables(parts).equals(TABLES["plain"])
    assert len(parts) > 8
    assert store.usage().requests() == 1 + 2 + 1, "the upload, the footer, and two row groups"


def flipped(made: EncodedSegment, position: int) -> bytes:
    body = bytearray(made.body)
    body[position] ^= 1
    return bytes(body)


@pytest.mark.parametrize("leaf", [1, 2, 3, VALUE], ids=["offset", "timestamp", "key", "value"])
async def test_damage_in_a_page_that_a_lookup_needs_is_reported(leaf: int) -> None:
    made, offset = MADE["full"], OFFSETS[6_000]
    group, _ = page_of(made, offset)
    row = OFFSETS.index(offset) - group * (len(OFFSETS) // 2)
    page = next(page for page in pages_of(made, group)[leaf] if page.next_row > row)
    start = footer_of(made).row_groups[group].start
    for position in (page.start, (page.start + page.end) // 2, page.end - 1):
        store = await stored(made, flipped(made, start + position))
        with pytest.raises(Corrupt, match=f"row group {group} does not have its checksum") as caught:
            await SegmentReader(store).read(span_in(made.segment, 4), offset, records_max=1)
        assert caught.value.name == made.segment.key


async def test_damage_in_another_page_harms_its_own_records_alone_and_verify_reports_it() -> None:
    made = MADE["plain"]
    last = pages_of(made, 0)[VALUE][-1]
    store = await stored(made, flipped(made, footer_of(made).row_groups[0].start + last.start + 40))
    found = span_in(made.segment, 4)
    assert (await SegmentReader(store).read(found, OFFSETS[50], records_max=1)).num_rows
    with pytest.raises(Corrupt, match="row group 0 does not have its checksum"):
        await SegmentReader(store).read(found, OFFSETS[len(OFFSETS) // 2 - 5], records_max=1)
    with pytest.raises(Corrupt, match="row group 0 does not have its checksum"):
        await SegmentReader(store).read(found, OFFSETS[0])
    with pytest.raises(Corrupt, match="row group 0 does not have its checksum"):
        await check_segment(store, made.segment)


@pytest.mark.parametrize("kind", ["plain", "full"])
async def test_no_flip_gives_other_records(kind: str) -> None:
    made, draw = MADE[kind], random.Random(3)
    found: FoundSpan = span_in(made.segment, 4)
    for _ in range(60):
        store = await stored(made, flipped(made, draw.randrange(len(made.body))))
        offset = draw.choice(OFFSETS)
        with suppress(Corrupt):
            records = await SegmentReader(store).read(found, offset, records_max=1)
            assert records.equals(TABLES[kind].slice(OFFSETS.index(offset), records.num_rows))


async def test_verify_accepts_a_sound_map() -> None:
    for made in MADE.values():
        await check_segment(await stored(made), made.segment)
