"""WAL entries are encoded and decoded, and invalid ones refused."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.record_tables import (
    SHOP,
    WEB,
    WEB_1,
    marks_of,
    payloads,
    record_table,
    records_header,
    span_lists,
    spans_of,
    wal_table,
)

from tidelog.storage.errors import Corrupt, Invalid, NewerFormat
from tidelog.storage.formats import Format
from tidelog.storage.layout import TopicPartition
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_ROWS_MAX, ParquetFlavor, row_group_rows
from tidelog.storage.records import WAL_SCHEMA, as_stored
from tidelog.storage.wal.wal_codec import WAL_FLAVOR, ParquetWalCodec
from tidelog.storage.wal.wal_entry import EntryKind, ProducerMark

KEY = "wal/0000/00000000000000000007.parquet"
codec = ParquetWalCodec()


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_what_is_encoded_is_decoded(data: st.DataObject) -> None:
    spans = data.draw(span_lists())
    rows = sum(span.count for span in spans)
    table = wal_table(spans, data.draw(st.lists(payloads, min_size=rows, max_size=rows)))
    header = records_header(spans, producers=data.draw(marks_of(spans)))
    body = bytes(codec.encode(header, table))
    entry = codec.decode(KEY, body)
    assert entry.header == header
    assert entry.records.equals(table)
    assert entry.records.schema.equals(WAL_SCHEMA)
    assert codec.decode_header(KEY, body[-codec.header_bytes(KEY, body[-8:]) :]) == header


def test_a_start_entry_has_a_header_and_no_rows() -> None:
    header = records_header(())
    body = bytes(codec.encode(header, WAL_SCHEMA.empty_table()))
    entry = codec.decode(KEY, body)
    assert entry.header == header
    assert entry.header.kind is EntryKind.START
    assert entry.records.num_rows == 0
    assert entry.records.schema.equals(WAL_SCHEMA)


def test_a_span_gives_its_records() -> None:
    spans = spans_of((WEB, 5, 3), (WEB_1, 0, 2), (SHOP, 9, 4))
    entry = codec.decode(KEY, bytes(codec.encode(records_header(spans), wal_table(spans))))
    assert entry.records_of(spans[1]).equals(record_table([0, 1]))
    assert entry.records_of(spans[2]).equals(record_table([9, 10, 11, 12]))


def test_the_header_is_read_from_the_tail_alone() -> None:
    spans = spans_of((WEB, 0, 50_000))
    header = records_header(spans)
    body = bytes(codec.encode(header, wal_table(spans)))
    needed = codec.header_bytes(KEY, body[-8:])
    assert needed < 2_048 < len(body)
    assert codec.decode_header(KEY, body[-needed:]) == header
    assert codec.decode_header(KEY, body) == header
    with pytest.raises(Corrupt, match="footer takes"):
        codec.decode_header(KEY, body[-needed + 1 :])


def test_an_entry_may_hold_ten_thousand_partitions() -> None:
    spans = spans_of(*((TopicPartition(f"{n // 100:032x}", n % 100), n, 2) for n in range(10_000)))
    marks = tuple(ProducerMark(span.topic_partition, "producer", 0, 4, 5, span.base_offset) for span in spans)
    header = records_header(spans, producers=marks)
    body = bytes(codec.encode(header, wal_table(spans)))
    assert codec.decode(KEY, body).header == header
    assert pq.read_metadata(pa.BufferReader(body)).num_row_groups == 1


def test_chunks_of_many_appends_share_a_row_group() -> None:
    spans = spans_of(*((TopicPartition("ab", n), 0, 3) for n in range(500)))
    table = pa.concat_tables([wal_table([replace(span, first_row=0)]) for span in spans])
    body = bytes(codec.encode(records_header(spans), table))
    assert pq.read_metadata(pa.BufferReader(body)).num_row_groups == 1
    assert codec.decode(KEY, body).records.equals(table)


def test_a_large_entry_is_cut_into_row_groups_of_about_eight_mebibytes() -> None:
    spans = spans_of((WEB, 0, 20_000))
    table = wal_table(spans, [(None, b"%1000d" % n, None) for n in range(20_000)])
    body = bytes(codec.encode(records_header(spans), table))
    assert pq.read_metadata(pa.BufferReader(body)).num_row_groups in (2, 3)
    assert codec.decode(KEY, body).records.equals(table)


def test_a_row_group_has_a_million_rows_at_most() -> None:
    rows = row_group_rows(pa.table({"tiny": pa.nulls(2_500_000)}))
    assert 800_000 < rows <= ROW_GROUP_ROWS_MAX


def test_a_few_small_records_are_not_compressed_and_more_are() -> None:
    def compression(rows: int) -> str:
        table = wal_table(spans_of((WEB, 0, rows)), [(None, b"%1000d" % n, None) for n in range(rows)])
        body = codec.encode(records_header(spans_of((WEB, 0, rows))), table)
        return str(pq.read_metadata(pa.BufferReader(body)).row_group(0).column(5).compression)

    assert (compression(1), compression(3), compression(5)) == ("UNCOMPRESSED", "UNCOMPRESSED", "ZSTD")


MISMATCHES = {
    "a row too many": spans_of((WEB, 0, 3)),
    "other offsets": spans_of((WEB, 1, 4)),
    "another partition": spans_of((WEB_1, 0, 4)),
    "a gap between spans": spans_of((WEB, 0, 2), (WEB_1, 2, 2)),
    "no spans": (),
    "spans out of order": spans_of((SHOP, 0, 2), (WEB, 0, 2)),
    "a span that begins at another row": (replace(spans_of((WEB, 0, 4))[0], first_row=1),),
    "a span twice": spans_of((WEB, 0, 2), (WEB, 2, 2)),
}


@pytest.mark.parametrize("spans", MISMATCHES.values(), ids=MISMATCHES)
def test_records_that_are_not_what_the_spans_say_are_refused(spans: tuple) -> None:
    with pytest.raises(Invalid):
        codec.encode(records_header(spans), wal_table(spans_of((WEB, 0, 4))))


def test_records_of_another_shape_are_refused() -> None:
    with pytest.raises(Invalid, match="WAL_SCHEMA"):
        codec.encode(records_header(spans_of((WEB, 0, 4))), record_table([0, 1, 2, 3]))


# ---- well-made objects with the wrong content: only the cross-checks can tell


def _object(header_json: str, table: pa.Table, flavor: ParquetFlavor = WAL_FLAVOR) -> bytes:
    return bytes(encode_parquet(flavor, as_stored(table), header_json.encode()))


GOOD = (
    '{"kind":"records","shard":0,"seq":7,"epoch":1,"writer_id":"w","entry_id":"e","written_at_ms":5,'
    '"topic_ids":["' + WEB.topic_id + '"],"spans":[[0,0,0,4]],"producers":[]}'
)
FALSE_HEADERS = {
    "not JSON": "{",
    "a field too few": GOOD.replace('"epoch":1,', ""),
    "a negative offset": GOOD.replace("[0,0,0,4]", "[0,0,-1,4]"),
    "an empty span": GOOD.replace("[0,0,0,4]", "[0,0,0,4],[0,1,0,0]"),
    "a topic that is not listed": GOOD.replace("[0,0,0,4]", "[1,0,0,4]"),
    "other offsets": GOOD.replace("[0,0,0,4]", "[0,0,1,4]"),
    "a count beyond all rows": GOOD.replace("[0,0,0,4]", "[0,0,0,9223372036854775807]"),
    "two counts that overflow": GOOD.replace("[0,0,0,4]", "[0,0,0,9223372036854775807],[0,1,0,9223372036854775807]"),
    "a start with spans": GOOD.replace('"records"', '"start"'),
    "an unknown kind": GOOD.replace('"records"', '"other"'),
}


def test_the_good_header_of_these_tests_is_good() -> None:
    assert codec.decode(KEY, _object(GOOD, wal_table(spans_of((WEB, 0, 4))))).header.seq == 7


def test_what_a_later_program_adds_to_a_header_is_passed_over() -> None:
    later = GOOD.replace('"shard"', '"more":1,"shard"').replace("[0,0,0,4]", '[0,0,0,4,"more"]')
    records = wal_table(spans_of((WEB, 0, 4)))
    assert codec.decode(KEY, _object(later, records)).header == codec.decode(KEY, _object(GOOD, records)).header


@pytest.mark.parametrize("header_json", FALSE_HEADERS.values(), ids=FALSE_HEADERS)
def test_a_header_that_does_not_fit_the_rows_is_corrupt(header_json: str) -> None:
    with pytest.raises(Corrupt) as caught:
        codec.decode(KEY, _object(header_json, wal_table(spans_of((WEB, 0, 4)))))
    assert caught.value.name == KEY


def test_an_unknown_format_version_is_refused_with_both_versions_named() -> None:
    later = replace(WAL_FLAVOR, form=Format("wal", 3, 3))
    body = _object(GOOD, wal_table(spans_of((WEB, 0, 4))), later)
    with pytest.raises(NewerFormat, match=r"version 3 of the format .wal., and this Tidelog reads up to 2"):
        codec.decode(KEY, body)
    with pytest.raises(NewerFormat):
        codec.decode_header(KEY, body)


def test_other_columns_are_corrupt() -> None:
    table = record_table([0, 1, 2, 3])
    flavor = replace(WAL_FLAVOR, schema=table.schema, statistics=())
    with pytest.raises(Corrupt, match="lacks the column 'partition'"):
        codec.decode(KEY, bytes(encode_parquet(flavor, table, GOOD.encode())))


def test_somebody_elses_parquet_is_corrupt() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(wal_table(spans_of((WEB, 0, 4))), sink)
    with pytest.raises(Corrupt, match="another program wrote it"):
        codec.decode(KEY, sink.getvalue().to_pybytes())


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"\xff\xff\xff\x7fPAR1", b"hello " * 100])
def test_a_body_that_is_not_parquet_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decode(KEY, data)
