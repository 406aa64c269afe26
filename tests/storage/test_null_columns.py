"""A column without any value is recognised by its levels; a column with a value or an empty list is not."""

from __future__ import annotations

import pytest
from tests.storage.record_tables import Payload, record_table
from tests.storage.topic_segments import made_segment, span_in

from tidelog.storage.parquet.column_pages import column_pages, only_nulls
from tidelog.storage.parquet.group_columns import GroupColumns
from tidelog.storage.parquet.page_map import walked
from tidelog.storage.parquet.parquet_format import decode_footer
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.segments.segment_slice import decode_span
from tidelog.storage.segments.span_groups import span_groups
from tidelog.storage.segments.stored_groups import StoredGroups, Wanted
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR

KEY_LEAF = 3
HEADER = {"key": "h", "value": b"1"}
EMPTY_HEADER = {"key": "", "value": None}


def absent(payloads: list[Payload]) -> tuple[bool, bool]:
    """Whether keys and headers are reported absent. Also checks that a slice of them equals what was written."""
    table = record_table(range(len(payloads)), payloads)
    encoded = made_segment({0: table})
    key, body = encoded.segment.key, memoryview(bytes(encoded.body))
    footer = decode_footer(key, SEGMENT_FLAVOR, body, len(body))
    told, first = [True, True], 0
    for each in span_groups(footer, span_in(encoded.segment, 0)):
        group = each.group
        data = body[group.start : group.end]
        columns = GroupColumns(
            key, STORED_SCHEMA, footer, group, data, walked(footer.metadata, group.index, data, group.start)
        )
        for place, name in enumerate(("key", "headers")):
            told[place] &= name in columns.absent
        few = decode_span(StoredGroups(key, footer, data, group.start), [each], Wanted(0, first, 1, 1))
        assert few.equals(table.slice(first, few.num_rows))
        first += group.rows
        assert few.schema.equals(table.schema)
    return told[0], told[1]


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 8_191, 8_192, 20_000, 50_000])
def test_a_key_that_nobody_wrote_is_reported(rows: int) -> None:
    assert absent([(None, b"v", None)] * rows) == (True, True)


@pytest.mark.parametrize("place", [0, 77, 29_999])
@pytest.mark.parametrize("headers", [[], [HEADER], [EMPTY_HEADER]], ids=["empty list", "header", "empty header"])
def test_one_list_of_headers_among_many_is_not_overlooked(place: int, headers: list[dict[str, bytes]]) -> None:
    payloads: list[Payload] = [(None, b"v", None)] * 30_000
    payloads[place] = (None, b"v", headers)
    assert absent(payloads) == (True, False)


@pytest.mark.parametrize("key", [b"", b"k"], ids=["empty key", "key"])
def test_one_key_among_many_is_not_overlooked(key: bytes) -> None:
    payloads: list[Payload] = [(None, b"v", None)] * 30_000
    payloads[12_345] = (key, b"v", None)
    assert absent(payloads) == (False, True)


@pytest.mark.parametrize("headers", [[], [HEADER], [EMPTY_HEADER]], ids=["empty lists", "headers", "empty headers"])
def test_the_same_in_every_record_is_not_taken_for_nothing(headers: list[dict[str, bytes]]) -> None:
    assert absent([(b"", b"v", headers)] * 5_000) == (False, False)


def test_bytes_that_are_no_compressed_page_are_left_to_the_reader() -> None:
    encoded = made_segment({0: record_table(range(100), [(None, b"v", None)] * 100)})
    body = bytearray(bytes(encoded.body))
    footer = decode_footer(encoded.segment.key, SEGMENT_FLAVOR, bytes(body), len(body))
    group = footer.row_groups[0]
    column = footer.metadata.row_group(0).column(KEY_LEAF)
    end = column.data_page_offset + column.total_compressed_size
    magic = bytes(body).rindex(b"\x28\xb5\x2f\xfd", column.data_page_offset, end)
    body[magic] ^= 0xFF
    data = memoryview(bytes(body))[group.start : group.end]
    pages = column_pages(column, data, group.start)
    assert pages
    assert not only_nulls(pages, data, 0)
