"""Arrow bodies are accepted as a whole, or refused before any length in them is trusted."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from tests.http.requests import arrow_stream, full_table, values_table

from tidelog.services.http.bodies.arrow_body import decode_arrow
from tidelog.storage.errors import Invalid, TooLarge
from tidelog.storage.records import DRAFT_SCHEMA, HEADERS
from tidelog.wire.errors import Unreadable

EXPANDED_BYTES_MAX = 1 << 20
END = b"\xff\xff\xff\xff\0\0\0\0"


def decode(body: bytes) -> pa.Table:
    return decode_arrow(body, 1_000, EXPANDED_BYTES_MAX).records


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_every_column_arrives(compression: str | None) -> None:
    draft = decode_arrow(arrow_stream(full_table(), compression), 10, EXPANDED_BYTES_MAX)
    assert draft.records.schema == DRAFT_SCHEMA
    assert draft.records.equals(full_table().drop_columns("partition").cast(DRAFT_SCHEMA))
    assert draft.partitions is not None
    assert draft.partitions.to_pylist() == [1, None]


def test_value_alone_is_enough_and_columns_come_in_any_order() -> None:
    assert decode(arrow_stream(values_table([b"x", None]))).column("value").to_pylist() == [b"x", None]
    turned = full_table().select(["partition", "headers", "value", "timestamp", "key"])
    assert decode(arrow_stream(turned)).column("headers").to_pylist()[0] == [
        {"key": "h", "value": b"x"},
        {"key": "i", "value": None},
    ]


def test_several_batches_follow_each_other() -> None:
    table = pa.concat_tables([values_table([b"a"]), values_table([]), values_table([b"b", b"c"])])
    assert decode(arrow_stream(table)).column("value").to_pylist() == [b"a", b"b", b"c"]


def test_columns_are_views_of_an_uncompressed_body() -> None:
    body = arrow_stream(values_table([b"x" * 100_000]))
    before = pa.total_allocated_bytes()
    table = decode(body)
    assert pa.total_allocated_bytes() - before < 50_000
    assert table.num_rows == 1


def test_metadata_of_others_is_left_aside() -> None:
    table = values_table([b"x"]).replace_schema_metadata({"pandas": "{}"})
    assert decode(arrow_stream(table)).schema.metadata is None


def test_header_lists_may_be_named_otherwise() -> None:
    strict = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    table = values_table([b"x", b"y"]).append_column("headers", pa.array([[("h", b"1")], None], strict))
    assert decode(arrow_stream(table)).column("headers").type == HEADERS


def test_a_header_without_a_key_is_refused() -> None:
    loose = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for headers in ([[(None, b"1")]], [[None]]):
        table = values_table([b"x"]).append_column("headers", pa.array(headers, loose))
        with pytest.raises(Invalid, match="header") as refusal:
            decode(arrow_stream(table))
        assert refusal.value.field == "headers"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("value", pa.array(["text"])),
        ("value", pa.array([b"x"], pa.large_binary())),
        ("value", pa.array([b"x"], pa.binary_view())),
        ("value", pa.array([b"x"], pa.binary(1))),
        ("key", pa.array([1], pa.int32())),
        ("timestamp", pa.array([1], pa.int64())),
        ("timestamp", pa.array([1], pa.timestamp("us", tz="UTC"))),
        ("timestamp", pa.array([1], pa.timestamp("ms"))),
        ("partition", pa.array([1], pa.int64())),
        ("headers", pa.array([{"a": "b"}], pa.struct([("a", pa.string())]))),
        ("headers", pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))),
        ("offset", pa.array([1], pa.int64())),
        ("x" * 10_000, pa.array([1], pa.int64())),
    ],
)
def test_another_column_or_type_is_refused_with_its_name(name: str, column: pa.Array) -> None:
    table = pa.table({"value": pa.array([b"x"], pa.binary())} | {name: column})
    with pytest.raises(Invalid) as refusal:
        decode(arrow_stream(table))
    assert refusal.value.field == name[:80]


def test_a_stream_without_values_or_with_a_column_twice_is_refused() -> None:
    key = pa.array([b"k"], pa.binary())
    with pytest.raises(Invalid):
        decode(arrow_stream(pa.table({"key": key})))
    with pytest.raises(Invalid):
        decode(arrow_stream(pa.Table.from_arrays([key, key, key], names=["value", "key", "key"])))


def test_dictionaries_are_refused() -> None:
    table = pa.table({"value": pa.array([b"x", b"x"], pa.binary()).dictionary_encode()})
    with pytest.raises(Invalid):
        decode(arrow_stream(table))


def test_big_endian_data_is_refused() -> None:
    with pytest.raises(Unreadable, match="big-endian"):
        decode(with_endianness(arrow_stream(values_table([b"x"]))))


def with_endianness(stream: bytes) -> bytes:
    """`stream` with the first slot of its schema's vtable, the endianness, set to big."""
    metadata = bytearray(stream[8 : 8 + struct.unpack_from("<i", stream, 4)[0]])
    message = struct.unpack_from("<I", metadata, 0)[0]
    vtable = message - struct.unpack_from("<i", metadata, message)[0]
    header = message + struct.unpack_from("<H", metadata, vtable + 8)[0]
    schema = header + struct.unpack_from("<I", metadata, header)[0]
    schema_vtable = schema - struct.unpack_from("<i", metadata, schema)[0]
    distance = next(at for at in range(4, 64) if metadata[schema + at : schema + at + 2] == b"\1\0")
    struct.pack_into("<H", metadata, schema_vtable + 4, distance)
    return stream[:8] + bytes(metadata) + stream[8 + len(metadata) :]


def test_a_small_body_that_claims_to_expand_is_refused_before_it_does() -> None:
    body = arrow_stream(values_table([b"\0" * 8_000_000]), "zstd")
    assert len(body) < 3_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(TooLarge) as refusal:
        decode(body)
    assert refusal.value.limit_bytes == EXPANDED_BYTES_MAX
    assert pa.default_memory_pool().max_memory() == before


def test_a_claim_below_what_is_there_does_not_hurt() -> None:
    body = bytearray(arrow_stream(values_table([b"\0" * 8_000_000]), "zstd"))
    claim = body.rfind(struct.pack("<q", 8_000_000))
    struct.pack_into("<q", body, claim, 100)
    with pytest.raises(Unreadable):
        decode(bytes(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"ARROW1\0\0",
        b"x" * 100,
        END,
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\xf8\xff\xff\xff",
        b"\xff\xff\xff\xff\x08\0\0\0" + b"\xff" * 8,
    ],
)
def test_an_invalid_stream_cannot_be_read(body: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(body)


def test_bytes_before_or_after_a_stream_are_refused() -> None:
    body = arrow_stream(values_table([b"x"]))
    for wrong in (b"\0" * 8 + body, body + b"\0", body + body, body + END):
        with pytest.raises(Unreadable):
            decode(wrong)


def test_a_stream_may_end_without_its_end_marker() -> None:
    body = arrow_stream(values_table([b"x"]))
    assert body.endswith(END)
    assert decode(body[: -len(END)]).num_rows == 1


def test_a_stream_cut_off_anywhere_else_is_refused() -> None:
    body = arrow_stream(full_table())
    for length in range(1, len(body) - len(END)):
        with pytest.raises(Invalid):
            decode(body[:length])


def test_a_stream_without_batches_is_refused_as_empty() -> None:
    with pytest.raises(Invalid, match="no records"):
        decode(arrow_stream(values_table([])))


def test_more_records_than_allowed_are_refused() -> None:
    assert decode(arrow_stream(values_table([b"x"] * 1_000))).num_rows == 1_000
    with pytest.raises(Invalid, match=r"request\.max\.records"):
        decode(arrow_stream(values_table([b"x"] * 1_001)))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("timestamp", pa.array([-1], pa.timestamp("ms", tz="UTC"))),
        ("timestamp", pa.array([2**62], pa.timestamp("ms", tz="UTC"))),
        ("partition", pa.array([-1], pa.int32())),
    ],
)
def test_numbers_out_of_their_range_are_refused(name: str, column: pa.Array) -> None:
    with pytest.raises(Invalid) as refusal:
        decode(arrow_stream(values_table([b"x"]).append_column(name, column)))
    assert refusal.value.field == name


def test_offsets_that_point_outside_the_values_are_refused() -> None:
    """Without full validation this reads outside the body."""
    body = arrow_stream(values_table([b"aaaa", b"bbbb"]))
    offsets = struct.pack("<iii", 0, 4, 8)
    assert body.count(offsets) == 1
    for wrong in ((0, 4, 2**31 - 1), (0, -4, 8), (8, 4, 0), (-(2**31), 4, 8)):
        with pytest.raises(Unreadable):
            decode(body.replace(offsets, struct.pack("<iii", *wrong)))


def test_header_keys_that_are_not_utf8_are_refused() -> None:
    table = values_table([b"x"]).append_column("headers", pa.array([[("hhhhhhhh", b"v")]], HEADERS))
    with pytest.raises(Unreadable):
        decode(arrow_stream(table).replace(b"hhhhhhhh", b"hh\xffhhhhh"))
