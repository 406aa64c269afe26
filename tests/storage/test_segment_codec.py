"""Segments are encoded and decoded, and other Parquet readers can read them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from demo.events import EventStream
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.record_tables import SHOP, WEB, payloads, record_table, records_header, spans_of, wal_table

from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.layout import manifest_prefix
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.records import RECORD_SCHEMA, STORED_SCHEMA, as_stored
from tidelog.storage.segments.segment_codec import SEGMENT_FLAVOR, decode_segment, describe_segment, encode_segment
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_codec import ParquetWalCodec

ID = "ab" * 16
HEADER = '{"topic":"web","topic_id":"' + WEB.topic_id + '","partition":0,"base_offset":3,"last_offset":5,"records":3}'


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_what_is_encoded_is_decoded_and_described(data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(0, 2**37), min_size=1, max_size=30)))
    table = record_table(offsets, data.draw(st.lists(payloads, min_size=len(offsets), max_size=len(offsets))))
    encoded = encode_segment("web", WEB, table, ID)
    segment = encoded.segment
    decoded = decode_segment(segment.key, bytes(encoded.body))
    assert decoded.equals(table)
    assert decoded.schema.equals(RECORD_SCHEMA)
    assert (segment.base_offset, segment.last_offset, segment.records) == (offsets[0], offsets[-1], len(offsets))
    assert (segment.min_timestamp_ms, segment.max_timestamp_ms) == (offsets[0] * 1_000, offsets[-1] * 1_000)
    assert describe_segment(segment.key, encoded.body) == segment


@pytest.mark.parametrize("offsets", [[], [2, 1], [1, 1], [-1, 0]], ids=["none", "descending", "twice", "negative"])
def test_records_that_make_no_segment_are_refused(offsets: list[int]) -> None:
    with pytest.raises(Invalid):
        encode_segment("web", WEB, record_table(offsets), ID)


def test_records_of_another_shape_are_refused() -> None:
    with pytest.raises(Invalid, match="RECORD_SCHEMA"):
        encode_segment("web", WEB, wal_table(spans_of((WEB, 0, 2))), ID)


def test_a_segment_under_anothers_name_is_corrupt() -> None:
    encoded = encode_segment("web", WEB, record_table([3, 4, 5]), ID)
    other = encode_segment("web", SHOP, record_table([3, 4, 5]), ID).segment.key
    with pytest.raises(Corrupt, match="other records than its name says"):
        decode_segment(other, encoded.body)


def test_a_wal_entry_is_no_segment() -> None:
    spans = spans_of((WEB, 3, 3))
    key = encode_segment("web", WEB, record_table([3, 4, 5]), ID).segment.key
    with pytest.raises(Corrupt, match="is wal/2; this version of Tidelog reads segment/2"):
        decode_segment(key, ParquetWalCodec().encode(records_header(spans), wal_table(spans)))


def test_an_unknown_format_version_is_refused() -> None:
    key = encode_segment("web", WEB, record_table([3, 4, 5]), ID).segment.key
    body = encode_parquet(replace(SEGMENT_FLAVOR, name="segment/3"), record_table([3, 4, 5]), HEADER.encode())
    with pytest.raises(Corrupt, match="is segment/3; this version of Tidelog reads segment/2"):
        decode_segment(key, body)


FALSE_ROWS = {"other offsets": [3, 4, 6], "too few": [3, 5], "out of order": [3, 6, 5], "twice": [3, 3, 5]}


@pytest.mark.parametrize("offsets", FALSE_ROWS.values(), ids=FALSE_ROWS)
def test_rows_that_are_not_what_the_header_says_are_corrupt(offsets: list[int]) -> None:
    key = encode_segment("web", WEB, record_table([3, 4, 5]), ID).segment.key
    assert decode_segment(key, encode_parquet(SEGMENT_FLAVOR, record_table([3, 4, 5]), HEADER.encode())).num_rows == 3
    with pytest.raises(Corrupt):
        decode_segment(key, encode_parquet(SEGMENT_FLAVOR, record_table(offsets), HEADER.encode()))


# ---- other readers


def segment_file(folder: Path, rows: int = 30_000) -> Path:
    """A segment with several row groups on disk."""
    table = record_table(range(rows), [(None, b"%01000d" % n, [{"key": "n", "value": b"%d" % n}]) for n in range(rows)])
    encoded = encode_segment("web", WEB, table, ID)
    path = folder / encoded.segment.key
    path.parent.mkdir(parents=True)
    path.write_bytes(encoded.body)
    return path


def test_pyarrow_reads_it_with_no_knowledge_of_tidelog(tmp_path: Path) -> None:
    table = pq.read_table(segment_file(tmp_path), page_checksum_verification=True, partitioning=None)
    assert table.schema.remove_metadata().equals(RECORD_SCHEMA)
    assert table["offset"].to_pylist() == list(range(30_000))
    assert table["timestamp"][5].as_py() == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_a_dataset_prunes_by_offset_and_takes_the_partition_from_the_path(tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    manifest = tmp_path / manifest_prefix("web", WEB.topic_id, 0) / f"{0:020d}.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("not Parquet")
    data = ds.dataset(tmp_path / "topics" / "web", partitioning="hive")
    late = data.to_table(filter=(pc.field("offset") >= 29_990) & (pc.field("partition") == 0))
    assert late["offset"].to_pylist() == list(range(29_990, 30_000))
    fragments = next(iter(data.get_fragments())).split_by_row_group()
    assert len(fragments) == pq.read_metadata(path).num_row_groups > 2
    wanted = next(iter(data.get_fragments())).split_by_row_group(pc.field("offset") >= 29_990)
    assert len(list(wanted)) == 1


def test_each_flavor_has_the_statistics_and_encodings_it_should(tmp_path: Path) -> None:
    group = pq.read_metadata(segment_file(tmp_path)).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    for name in ("offset", "timestamp"):
        assert columns[name].is_stats_set
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
    for name in ("key", "value"):
        assert not columns[name].is_stats_set
        assert not columns[name].has_dictionary_page
    assert {column.compression for column in columns.values()} == {"ZSTD"}


def test_a_wal_entry_is_plain_parquet_too(tmp_path: Path) -> None:
    spans = spans_of((WEB, 3, 3), (SHOP, 0, 2))
    path = tmp_path / "entry.parquet"
    path.write_bytes(ParquetWalCodec().encode(records_header(spans), wal_table(spans)))
    table = pq.read_table(path, page_checksum_verification=True)
    assert table.equals(as_stored(wal_table(spans)))
    assert table.schema.remove_metadata().equals(STORED_SCHEMA)
    group = pq.read_metadata(path).row_group(0)
    stated = [group.column(n).path_in_schema for n in range(group.num_columns) if group.column(n).is_stats_set]
    assert stated == ["partition", "offset", "timestamp"]


def encoded_bytes(values: list[bytes], *levels: int) -> int:
    table = record_table(range(len(values))).set_column(3, "value", pa.array(values, pa.binary()))
    flavor = replace(SEGMENT_FLAVOR, zstd_levels=levels)
    return len(encode_parquet(flavor, table.cast(RECORD_SCHEMA), b"{}"))


def test_a_costlier_level_is_taken_where_it_makes_the_values_smaller() -> None:
    values = [
        value for chunk in EventStream(7).chunks(4_000) for value in chunk.values.to_pylist() if value is not None
    ]
    assert encoded_bytes(values, 1, 5) == encoded_bytes(values, 5) < 0.96 * encoded_bytes(values, 1)


def test_a_costlier_level_is_not_taken_where_it_saves_next_to_nothing() -> None:
    random = b"".join(hashlib.sha512(b"%d" % n).digest() for n in range(4_000))
    values = [random[at : at + 64].hex().encode() for at in range(0, len(random), 64)]
    assert encoded_bytes(values, 1, 5) == encoded_bytes(values, 1) != encoded_bytes(values, 5)


# ---- dictionaries and bloom filters


def keyed(keys: list[bytes], values: list[bytes] | None = None) -> pa.Table:
    rows = [
        (key, value, None) for key, value in zip(keys, values or [b"%d" % n for n in range(len(keys))], strict=True)
    ]
    return record_table(range(len(keys)), rows)


def column_of(body: Body, name: str) -> pq.ColumnChunkMetaData:
    group = pq.read_metadata(pa.BufferReader(bytes(body))).row_group(0)
    return next(group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == name)


def drawn(kinds: int, count: int) -> list[bytes]:
    """`count` of `kinds` distinct keys, in random order."""
    return [b"key-" + hashlib.sha256(b"%d" % (n * n % 7919 % kinds)).hexdigest()[:24].encode() for n in range(count)]


async def test_a_dictionary_is_taken_where_it_pays_and_read_back() -> None:
    table = keyed(drawn(200, 20_000))
    encoded = encode_segment("web", WEB, table, ID)
    assert column_of(encoded.body, "key").has_dictionary_page
    assert not column_of(encoded.body, "value").has_dictionary_page
    without = encode_segment("web", WEB, table, ID, replace(SEGMENT_FLAVOR, dictionary_columns=()))
    assert len(encoded.body) < 0.96 * len(without.body)
    assert decode_segment(encoded.segment.key, bytes(encoded.body)).equals(table)
    store = MemoryObjectStore()
    await store.put(encoded.segment.key, encoded.body)
    assert (await SegmentReader(store).read(encoded.segment, 19_000)).slice(0, 10).equals(table.slice(19_000, 10))


FEW_SAVINGS = {
    "keys that never repeat": [b"%020d" % n for n in range(5_000)],
    "one key, which zstd sees as well": [b"k"] * 5_000,
}


@pytest.mark.parametrize("keys", FEW_SAVINGS.values(), ids=FEW_SAVINGS)
def test_a_dictionary_is_not_taken_where_it_saves_next_to_nothing(keys: list[bytes]) -> None:
    encoded = encode_segment("web", WEB, keyed(keys), ID)
    assert not column_of(encoded.body, "key").has_dictionary_page


def test_values_may_have_a_dictionary_too() -> None:
    table = keyed([b"%d" % n for n in range(20_000)], drawn(200, 20_000))
    encoded = encode_segment("web", WEB, table, ID)
    assert column_of(encoded.body, "value").has_dictionary_page
    assert decode_segment(encoded.segment.key, bytes(encoded.body)).equals(table)


def test_a_bloom_filter_of_keys_lies_between_the_rows_and_the_footer_and_has_a_checksum() -> None:
    table = keyed(drawn(2_000, 5_000))
    plain = encode_segment("web", WEB, table, ID)
    encoded = encode_segment("web", WEB, table, ID, replace(SEGMENT_FLAVOR, bloom_column="key"))
    assert column_of(plain.body, "key").bloom_filter_offset is None
    body = bytearray(encoded.body)
    position = column_of(body, "key").bloom_filter_offset
    assert decode_segment(encoded.segment.key, bytes(body)).equals(table)
    body[position + 100] ^= 1
    with pytest.raises(Corrupt, match="indexes do not have their checksum"):
        decode_segment(encoded.segment.key, bytes(body))
