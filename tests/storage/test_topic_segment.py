"""Segments of many partitions are encoded and decoded, and other Parquet readers can read them."""

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
from tests.storage.topic_segments import PLACE, decode_topic_segment, made_segment, span_in

from tidelog.storage.errors import Corrupt
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.records import RECORD_SCHEMA, STORED_SCHEMA, as_stored, from_stored
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, encode_header
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_codec import ParquetWalCodec


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_is_decoded(data: st.DataObject) -> None:
    tables = {}
    for number in data.draw(st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=4)):
        offsets = sorted(data.draw(st.sets(st.integers(0, 2**37), min_size=1, max_size=20)))
        rows = data.draw(st.lists(payloads, min_size=len(offsets), max_size=len(offsets)))
        tables[number] = record_table(offsets, rows)
    made = made_segment(tables)
    decoded = decode_topic_segment(made.segment, PLACE, made.body)
    assert decoded.schema.equals(STORED_SCHEMA)
    for number, table in tables.items():
        found = span_in(made.segment, number)
        rows = from_stored(decoded.slice(found.first_row, found.span.records))
        assert rows["partition"].unique().to_pylist() == [number]
        assert rows.drop_columns(["partition"]).cast(RECORD_SCHEMA).equals(table)


def test_a_segment_of_another_place_is_corrupt() -> None:
    made = made_segment({0: record_table([3, 4, 5])})
    with pytest.raises(Corrupt, match="belongs to another topic or shard"):
        decode_topic_segment(made.segment, replace(PLACE, shard=4), made.body)


def test_a_wal_entry_is_no_segment() -> None:
    spans = spans_of((WEB, 3, 3))
    segment = made_segment({0: record_table([3, 4, 5])}).segment
    with pytest.raises(Corrupt, match="is wal/"):
        decode_topic_segment(segment, PLACE, ParquetWalCodec().encode(records_header(spans), wal_table(spans)))


FALSE_ROWS = {
    "another first offset": {1: [2, 4, 5], 2: [7]},
    "another last offset": {1: [3, 4, 6], 2: [7]},
    "too few": {1: [3, 5], 2: [7]},
    "out of order": {1: [3, 6, 5], 2: [7]},
    "twice": {1: [3, 3, 5], 2: [7]},
    "another partition": {1: [3, 4, 5], 3: [7]},
    "a row of its neighbour": {1: [3, 4, 5, 6], 2: [7]},
}


@pytest.mark.parametrize("rows", FALSE_ROWS.values(), ids=FALSE_ROWS)
def test_rows_that_are_not_what_the_manifest_says_are_corrupt(rows: dict[int, list[int]]) -> None:
    true = made_segment({1: record_table([3, 4, 5]), 2: record_table([7])})
    false = made_segment({number: record_table(offsets) for number, offsets in rows.items()})
    header = encode_header(PLACE, true.segment.spans)
    table = pq.read_table(pa.BufferReader(bytes(false.body))).cast(STORED_SCHEMA)
    with pytest.raises(Corrupt):
        decode_topic_segment(true.segment, PLACE, encode_parquet(SEGMENT_FLAVOR, table, header))


# ---- other readers


def segment_file(folder: Path, rows: int = 30_000) -> Path:
    """A segment of two partitions with several row groups, on disk."""
    table = record_table(range(rows), [(None, b"%01000d" % n, [{"key": "n", "value": b"%d" % n}]) for n in range(rows)])
    made = made_segment({0: table.slice(0, 10_000), 7: table.slice(10_000)})
    path = folder / made.segment.key
    path.parent.mkdir(parents=True)
    path.write_bytes(made.body)
    return path


def test_pyarrow_reads_it_with_no_knowledge_of_tidelog(tmp_path: Path) -> None:
    table = pq.read_table(segment_file(tmp_path), page_checksum_verification=True)
    assert table.schema.remove_metadata().equals(STORED_SCHEMA)
    assert table["offset"].to_pylist() == list(range(30_000))
    assert table["timestamp"][5].as_py() == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_a_dataset_prunes_by_partition_and_offset(tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    data = ds.dataset(tmp_path / "topics" / "web", format="parquet")
    late = (pc.field("offset") >= 29_990) & (pc.field("partition") == 7)
    assert data.to_table(filter=late)["offset"].to_pylist() == list(range(29_990, 30_000))
    fragment = next(iter(data.get_fragments()))
    assert len(fragment.split_by_row_group()) == pq.read_metadata(path).num_row_groups > 2
    assert len(fragment.split_by_row_group(late)) == 1
    assert len(fragment.split_by_row_group(pc.field("partition") == 0)) < pq.read_metadata(path).num_row_groups


def test_each_flavor_has_the_statistics_and_encodings_it_should(tmp_path: Path) -> None:
    group = pq.read_metadata(segment_file(tmp_path)).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    for name in ("partition", "offset", "timestamp"):
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
    table = record_table(range(len(values)), [(None, value, None) for value in values])
    return len(made_segment({0: table}, flavor=replace(SEGMENT_FLAVOR, zstd_levels=levels)).body)


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
    encoded = made_segment({0: table})
    assert column_of(encoded.body, "key").has_dictionary_page
    assert not column_of(encoded.body, "value").has_dictionary_page
    without = made_segment({0: table}, flavor=replace(SEGMENT_FLAVOR, dictionary_columns=()))
    assert len(encoded.body) < 0.96 * len(without.body)
    store = MemoryObjectStore()
    await store.put(encoded.segment.key, encoded.body)
    reader, found = SegmentReader(store), span_in(encoded.segment, 0)
    assert (await reader.read(found, 0)).equals(table)
    assert (await reader.read(found, 19_000, records_max=10)).slice(0, 10).equals(table.slice(19_000, 10))


FEW_SAVINGS = {
    "keys that never repeat": [b"%020d" % n for n in range(5_000)],
    "one key, which zstd sees as well": [b"k"] * 5_000,
}


@pytest.mark.parametrize("keys", FEW_SAVINGS.values(), ids=FEW_SAVINGS)
def test_a_dictionary_is_not_taken_where_it_saves_next_to_nothing(keys: list[bytes]) -> None:
    encoded = made_segment({0: keyed(keys)})
    assert not column_of(encoded.body, "key").has_dictionary_page


def test_values_may_have_a_dictionary_too() -> None:
    table = keyed([b"%d" % n for n in range(20_000)], drawn(200, 20_000))
    encoded = made_segment({0: table})
    assert column_of(encoded.body, "value").has_dictionary_page
    assert decode_topic_segment(encoded.segment, PLACE, encoded.body)["value"].equals(table["value"])


def test_a_bloom_filter_of_keys_lies_between_the_rows_and_the_footer_and_has_a_checksum() -> None:
    table = keyed(drawn(2_000, 5_000))
    plain = made_segment({0: table})
    encoded = made_segment({0: table}, flavor=replace(SEGMENT_FLAVOR, bloom_column="key"))
    assert column_of(plain.body, "key").bloom_filter_offset is None
    body = bytearray(encoded.body)
    position = column_of(body, "key").bloom_filter_offset
    assert decode_topic_segment(encoded.segment, PLACE, bytes(body)).num_rows == 5_000
    body[position + 100] ^= 1
    with pytest.raises(Corrupt, match="indexes do not have their checksum"):
        decode_topic_segment(encoded.segment, PLACE, bytes(body))
