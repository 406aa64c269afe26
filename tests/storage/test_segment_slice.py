"""A slice of a row group equals the same part of the whole, for any request, and needs less decoding."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import PLACE, decode_topic_segment, made_segment, span_in

from tidelog.storage.errors import Corrupt
from tidelog.storage.parquet.column_pages import ColumnPage, column_pages
from tidelog.storage.parquet.group_columns import GroupColumns
from tidelog.storage.parquet.page_map import walked
from tidelog.storage.parquet.parquet_format import Footer, decode_footer
from tidelog.storage.parquet.thrift_compact import I32, Damaged, Struct, write_struct
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.segments.segment_slice import choose_pages, decode_span, offset_by_timestamp
from tidelog.storage.segments.span_groups import SpanGroup, span_groups
from tidelog.storage.segments.stored_groups import StoredGroups, Wanted
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR

OFFSETS = [offset for offset in range(1_000, 25_000) if offset % 7]
_DRAW = random.Random(3)
TABLE = record_table(
    OFFSETS,
    [
        (
            None if n % 5 == 0 else b"k%d" % (n % 50),
            None if n % 11 == 0 else _DRAW.randbytes(40) * 8,
            [{"key": "h", "value": b"1"}] if n % 3 == 0 else None,
        )
        for n in OFFSETS
    ],
)
PARTITION, BEFORE = 4, 700
ENCODED = made_segment({2: record_table(range(BEFORE)), PARTITION: TABLE, 5: record_table(range(900))}, ends=None)
KEY, BODY = ENCODED.segment.key, bytes(ENCODED.body)
FOOTER: Footer = decode_footer(KEY, SEGMENT_FLAVOR, BODY, len(BODY))
[PART] = span_groups(FOOTER, span_in(ENCODED.segment, PARTITION))
GROUP = PART.group
DATA = memoryview(BODY)[GROUP.start : GROUP.end]
ROWS = BEFORE + TABLE.num_rows + 900
ALL = 1 << 40


def sliced(offset: int, bytes_max: int, records_max: int, data: memoryview = DATA) -> pa.Table:
    """Records of the span, as the part of the row group that it is."""
    wanted = Wanted(PARTITION, offset, bytes_max, records_max)
    return decode_span(StoredGroups(KEY, FOOTER, data, GROUP.start), [PART], wanted)


def column() -> pq.ColumnChunkMetaData:
    return FOOTER.metadata.row_group(0).column(4)


def pages() -> list[ColumnPage]:
    found = column_pages(column(), DATA, GROUP.start)
    assert found is not None
    return list(found)


@given(
    offset=st.integers(0, OFFSETS[-1]),
    bytes_max=st.integers(1, 1 << 23),
    records_max=st.one_of(st.integers(1, 30_000), st.just(ALL)),
)
def test_a_slice_is_what_the_whole_has_from_there_on(offset: int, bytes_max: int, records_max: int) -> None:
    records = sliced(offset, bytes_max, records_max)
    first = int(np.searchsorted(OFFSETS, offset))
    assert records.equals(TABLE.slice(first, records.num_rows))
    left = TABLE.num_rows - first
    sizes = sum(len(value or b"") for value in records["value"].to_pylist())
    assert records.num_rows >= min(left, records_max) or sizes >= bytes_max or records.num_rows == left


def test_a_few_records_take_one_page_of_several() -> None:
    assert len(pages()) >= 4
    records = sliced(OFFSETS[9_000], 1, ALL)
    assert 0 < records.num_rows <= max(page.rows for page in pages())


def test_pages_meet_and_fill_their_column() -> None:
    found = pages()
    assert [page.first_row for page in found[1:]] == [page.next_row for page in found[:-1]]
    assert [page.start for page in found[1:]] == [page.end for page in found[:-1]]
    assert found[-1].next_row == ROWS
    assert found[-1].end - found[0].start == column().total_compressed_size


def test_any_neighbouring_pages_decode_to_their_rows() -> None:
    found = pages()
    columns = GroupColumns(KEY, STORED_SCHEMA, FOOTER, GROUP, DATA, walked(FOOTER.metadata, 0, DATA, GROUP.start))
    rows = decode_topic_segment(ENCODED.segment, PLACE, BODY)["value"]
    for first in range(len(found)):
        for last in range(first, len(found)):
            chosen = found[first : last + 1]
            first_row, end_row = chosen[0].first_row, chosen[-1].next_row
            values = columns.decode(["value"], first_row, end_row)["value"]
            assert values.equals(rows.slice(first_row, end_row - first_row))


PAGES = tuple(
    ColumnPage(start=n * 100, end=n * 100 + 100, first_row=n * 10, rows=10, raw_bytes=1_000) for n in range(5)
)


@pytest.mark.parametrize(
    ("row", "bytes_max", "records_max", "chosen"),
    [
        (38, ALL, ALL, [3, 4]),
        (0, 1, ALL, [0]),
        (9, 100, ALL, [0]),
        (9, 101, ALL, [0, 1]),
        (12, 1_800, ALL, [1, 2]),
        (12, 1_801, ALL, [1, 2, 3]),
        (12, ALL, 8, [1]),
        (12, ALL, 9, [1, 2]),
        (49, ALL, ALL, [4]),
        (0, ALL, ALL, [0, 1, 2, 3, 4]),
    ],
)
def test_pages_are_chosen_until_they_hold_what_is_wanted(
    row: int, bytes_max: int, records_max: int, chosen: list[int]
) -> None:
    wanted = Wanted(PARTITION, 0, bytes_max, records_max)
    assert list(choose_pages(PAGES, row, 50, wanted)) == [PAGES[n] for n in chosen]


def test_no_page_is_decoded_beyond_the_rows_of_the_partition() -> None:
    assert list(choose_pages(PAGES, 12, 20, Wanted(PARTITION, 0, ALL, ALL))) == [PAGES[1]]
    assert list(choose_pages(PAGES, 12, 21, Wanted(PARTITION, 0, ALL, ALL))) == [PAGES[1], PAGES[2]]


def test_the_first_offset_at_a_time_is_found_without_the_values() -> None:
    times = TABLE["timestamp"].cast(pa.int64()).to_pylist()
    stored = StoredGroups(KEY, FOOTER, DATA, GROUP.start)

    def first_at(timestamp_ms: int, offset: int) -> int | None:
        return offset_by_timestamp(stored, PART, Wanted(PARTITION, offset, 1, 1), timestamp_ms)

    assert first_at(times[500], 0) == OFFSETS[500]
    assert first_at(times[500], OFFSETS[600]) == OFFSETS[600]
    assert first_at(times[-1] + 1, 0) is None


def test_a_flip_is_noticed_in_a_page_that_is_not_asked_for() -> None:
    middle = pages()[3].start + 50
    flipped = bytearray(DATA)
    flipped[middle] ^= 1
    with pytest.raises(Corrupt, match="row group 0 does not have its checksum"):
        sliced(OFFSETS[0], 1, 1, memoryview(bytes(flipped)))


def test_values_with_a_dictionary_are_decoded_whole() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, compression="zstd", use_dictionary=["value"])
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    assert column_pages(file.metadata.row_group(0).column(3), memoryview(sink.getvalue()), 0) is None


def header(rows: int, stored_bytes: int) -> bytes:
    return write_struct(Struct({1: I32(0), 2: I32(10), 3: I32(stored_bytes), 5: Struct({1: I32(rows)})}))


COLUMN_BYTES = pages()[-1].end - pages()[0].start
LIES = {
    "beyond the column": header(5, COLUMN_BYTES),
    "no rows": header(0, 100),
    "fewer rows than the footer says": header(5, COLUMN_BYTES - len(header(5, COLUMN_BYTES))),
    "a size below zero": header(5, -100),
    "no sizes": write_struct(Struct({1: I32(0)})),
    "no end": b"\x15" + b"\xff" * 30,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_header_that_lies_is_damage(lie: bytes) -> None:
    start = pages()[0].start
    lied = bytearray(DATA)
    lied[start : start + len(lie)] = lie
    with pytest.raises(Damaged):
        column_pages(column(), memoryview(bytes(lied)), GROUP.start)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_header_is_parsed_only_after_its_row_group_has_its_checksum(lie: bytes) -> None:
    start = pages()[0].start
    lied = bytearray(DATA)
    lied[start : start + len(lie)] = lie
    with pytest.raises(Corrupt, match="row group 0 does not have its checksum"):
        sliced(OFFSETS[0], 1, 1, memoryview(bytes(lied)))


def test_offsets_outside_the_limits_of_the_span_are_damage() -> None:
    narrow = SpanGroup(GROUP, PART.first_row, PART.end_row, PART.base_offset + 1, PART.last_offset)
    with pytest.raises(Corrupt, match="which its manifest or its statistics exclude"):
        decode_span(StoredGroups(KEY, FOOTER, DATA, GROUP.start), [narrow], Wanted(PARTITION, 0, ALL, ALL))
