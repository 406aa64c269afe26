"""Columns are found by field id, then by name; what a later program adds, moves or renames does not matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.storage.record_tables import record_table
from tests.storage.topic_segments import PLACE, decode_topic_segment, made_segment, span_in

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.parquet.parquet_encoder import fill_in_checksums
from tidelog.storage.parquet.parquet_format import CHECKSUM_DIGITS, CHECKSUMS_KEY, FORMAT_KEY, HEADER_KEY, decode_footer
from tidelog.storage.parquet.row_decoding import decode_parquet
from tidelog.storage.parquet.row_group_copy import CopySource
from tidelog.storage.records import RECORD_SCHEMA, STORED_SCHEMA
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.segments.topic_segment import SEGMENT_FLAVOR, encode_header, sha256_of
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_codec import WAL_FLAVOR

ID = b"PARQUET:field_id"
RECORDS = record_table(range(3_000), [(None, b"%d" % at * 60, None) for at in range(3_000)])
OURS = made_segment({4: RECORDS})
ROWS = decode_topic_segment(OURS.segment, PLACE, memoryview(OURS.body))
EXTRA = pa.array([[{"a": 1, "b": "x"}]] * ROWS.num_rows, pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])))

Columns = dict[str, tuple["pa.Field[Any]", Any]]
"""Field and values, by our names."""


def columns() -> Columns:
    return {field.name: (field, ROWS[field.name]) for field in STORED_SCHEMA}


def renamed(some: Columns, name: str, to: str, field_id: bytes | None = None) -> Columns:
    field, values = some[name]
    metadata = {ID: field_id} if field_id else field.metadata
    return {**some, name: (field.with_name(to).with_metadata(metadata), values)}


def with_extra(some: Columns) -> Columns:
    """The nested column comes first, so all others have other numbers among Parquet's columns."""
    field = pa.field("trace", EXTRA.type, metadata={ID: b"100"})
    return {"trace": (field, EXTRA), **some, "tenant": (pa.field("tenant", pa.string()), pa.nulls(3_000, pa.string()))}


def without_ids(some: Columns) -> Columns:
    return {name: (field.with_metadata(None), values) for name, (field, values) in some.items()}


def by_another_program(some: Columns, form: str = SEGMENT_FLAVOR.name) -> EncodedSegment:
    """A segment with these columns, in this order."""
    fields = [field for field, _ in some.values()]
    table = pa.Table.from_arrays([values for _, values in some.values()], schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", use_dictionary=False, store_schema=False) as writer:
        writer.write_table(table)
        end = sink.tell()
        header = encode_header(PLACE, OURS.segment.spans).decode()
        ours = {FORMAT_KEY: form, HEADER_KEY: header, CHECKSUMS_KEY: "0" * CHECKSUM_DIGITS * 2}
        writer.add_key_value_metadata(ours)
    body = memoryview(sink.getvalue()).cast("B")
    fill_in_checksums(body, [end])
    segment = replace(OURS.segment, size_bytes=len(body), sha256=sha256_of(body))
    return EncodedSegment(OURS.topic_id, segment, body.toreadonly())


READABLE: Mapping[str, Callable[[Columns], Columns]] = {
    "as we write it": lambda some: some,
    "extra columns": with_extra,
    "another order": lambda some: dict(reversed(some.items())),
    "renamed columns": lambda some: renamed(renamed(some, "value", "payload"), "offset", "position"),
    "all of it": lambda some: with_extra(renamed(dict(reversed(some.items())), "key", "id")),
    "no field ids": without_ids,
    "our name for another column": lambda some: {
        "other": (pa.field("value", pa.int64(), metadata={ID: b"77"}), pa.array(range(3_000))),
        **renamed(some, "value", "payload"),
    },
}


@pytest.mark.parametrize("alter", READABLE.values(), ids=READABLE.keys())
async def test_a_segment_with_other_columns_is_read(alter: Callable[[Columns], Columns]) -> None:
    """As a whole, in small parts (pages of values, absent columns), and by time."""
    encoded = by_another_program(alter(columns()))
    assert decode_topic_segment(encoded.segment, PLACE, memoryview(encoded.body)).equals(ROWS)
    store = MemoryObjectStore()
    await store.put(encoded.segment.key, bytes(encoded.body))
    reader, found = SegmentReader(store), span_in(encoded.segment, 4)
    for offset in (0, 1_700, 2_999):
        few = await reader.read(found, offset, bytes_max=1, records_max=1)
        assert few.schema.equals(RECORD_SCHEMA)
        assert few.slice(0, 1).equals(RECORDS.slice(offset, 1))
    time_ms = RECORDS["timestamp"].cast(pa.int64())[2_000].as_py()
    assert await reader.find_offset_by_timestamp(found, time_ms) is not None


@pytest.mark.parametrize("name", STORED_SCHEMA.names)
def test_a_missing_column_is_an_error_that_names_it(name: str) -> None:
    some = columns()
    del some[name]
    with pytest.raises(Corrupt, match=f"lacks the column '{name}' \\(field id {STORED_SCHEMA.names.index(name) + 1}"):
        decode_parquet("s.parquet", SEGMENT_FLAVOR, by_another_program(some).body)


def test_a_column_of_our_name_with_another_id_is_another_column() -> None:
    with pytest.raises(Corrupt, match="lacks the column 'value'"):
        decode_parquet(
            "s.parquet", SEGMENT_FLAVOR, by_another_program(renamed(columns(), "value", "value", b"77")).body
        )


def test_a_column_of_another_type_is_an_error_that_names_it() -> None:
    field, values = columns()["offset"]
    some = {**columns(), "offset": (field.with_type(pa.string()), values.cast(pa.string()))}
    with pytest.raises(Corrupt, match="its column 'offset' is string, and not int64"):
        decode_parquet("s.parquet", SEGMENT_FLAVOR, by_another_program(some).body)


def test_only_an_object_with_our_columns_alone_may_be_copied_row_group_by_row_group() -> None:
    for name, alter in READABLE.items():
        body = by_another_program(alter(columns())).body
        footer = decode_footer("s.parquet", SEGMENT_FLAVOR, body, len(body))
        assert footer.has_only_ours == (name == "as we write it"), name
    entry = by_another_program(columns(), WAL_FLAVOR.name).body
    assert CopySource("wal", WAL_FLAVOR, entry).footer.has_only_ours
