"""Batches are decoded as the plain Python decoder says, or refused by name."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record_batches import reference
from tests.record_batches.batches import (
    BYTES_MAX,
    INT32_MAX,
    NOW_MS,
    Made,
    batch_of,
    codecs,
    decoded,
    records,
    records_of,
)
from tests.record_batches.reference import Record

from tidelog.record_batches.batch_header import Codec
from tidelog.record_batches.decode import batches_in, decode_batch
from tidelog.record_batches.errors import CorruptBatch, UnsupportedBatch
from tidelog.storage.records import DRAFT_SCHEMA

LOG_APPEND_TIME, CONTROL, TRANSACTIONAL = 0x08, 0x20, 0x10
ONE = Record(0, NOW_MS + 5, b"key", b"value", [("a", b"1"), ("b", None)])


def with_field(data: bytes, form: str, at: int, value: int) -> bytes:
    """`data` with one field of its header changed, and the checksum made right again."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, reference.crc32c(bytes(changed[21:])))
    return bytes(changed)


@given(records(), codecs)
def test_records_of_every_shape_and_codec(found: list[Record], codec: Codec) -> None:
    batch = decoded(batch_of(found, Made(codec, base_offset=7)))
    assert records_of(batch) == found
    assert batch.records.schema == DRAFT_SCHEMA
    assert batch.header.base_offset == 7
    assert batch.header.count == len(found)
    assert batch.is_dense
    assert batch.raw_bytes == len(reference.encode_records(found, NOW_MS))


@given(records(st.integers(-INT32_MAX - 1, INT32_MAX)))
def test_offset_deltas_are_kept_as_they_are(found: list[Record]) -> None:
    batch = decoded(batch_of(found))
    assert records_of(batch) == found
    assert batch.is_dense == ([record.offset_delta for record in found] == list(range(len(found))))


def test_a_gap_behind_the_last_record_makes_a_batch_sparse() -> None:
    batch = decoded(with_field(batch_of([ONE]), ">i", 23, 9))
    assert not batch.is_dense
    assert batch.header.last_offset_delta == 9


def test_log_append_time_is_the_time_of_every_record() -> None:
    data = with_field(batch_of([ONE, ONE], Made(further_attributes=LOG_APPEND_TIME)), ">q", 35, NOW_MS + 99)
    assert [record.timestamp for record in records_of(decoded(data))] == [NOW_MS + 99] * 2


def test_flags_are_told() -> None:
    header = decoded(batch_of([ONE], Made(further_attributes=CONTROL | TRANSACTIONAL))).header
    assert header.is_control
    assert header.is_transactional
    assert not header.has_log_append_time


def test_several_batches_in_one_buffer() -> None:
    parts = [
        batch_of([ONE] * count, Made(codec)) for count, codec in ((1, Codec.NONE), (0, Codec.NONE), (3, Codec.ZSTD))
    ]
    found = [decode_batch(batch, BYTES_MAX) for batch in batches_in(pa.py_buffer(b"".join(parts)))]
    assert [batch.records.num_rows for batch in found] == [1, 0, 3]


def test_no_bytes_are_no_batches() -> None:
    assert list(batches_in(pa.py_buffer(b""))) == []


@given(st.data())
def test_a_batch_that_is_cut_off_is_refused(data: st.DataObject) -> None:
    whole = batch_of([ONE])
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(CorruptBatch):
        decoded(whole[:cut])


@given(st.data())
def test_a_changed_byte_behind_the_checksum_is_refused(data: st.DataObject) -> None:
    changed = bytearray(batch_of([ONE]))
    changed[data.draw(st.integers(17, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatch, match="checksum"):
        decoded(bytes(changed))


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_refused_by_name(magic: int) -> None:
    data = bytearray(batch_of([ONE]))
    data[16] = magic
    for size in (17, len(data)):  # an old message may be shorter than the header of a batch
        with pytest.raises(UnsupportedBatch, match=f"magic {magic}"):
            decoded(bytes(data[:size]))


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_unknown_formats_are_corrupt(magic: int) -> None:
    data = bytearray(batch_of([ONE]))
    data[16] = magic
    with pytest.raises(CorruptBatch, match="has magic"):
        decoded(bytes(data))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused_by_number(codec: int) -> None:
    with pytest.raises(UnsupportedBatch, match=f"codec {codec}"):
        decoded(batch_of([ONE], Made(further_attributes=codec)))


@pytest.mark.parametrize("length", [-(1 << 31), -12, -1, 0, 48, INT32_MAX])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch, match="bytes, but"):
        decoded(with_field(batch_of([ONE]), ">i", 8, length))


@pytest.mark.parametrize("count", [-1, 0, 2, 1_000, INT32_MAX])
def test_a_count_that_is_not_that_of_the_records_is_refused(count: int) -> None:
    with pytest.raises(CorruptBatch):
        decoded(with_field(batch_of([ONE]), ">i", 57, count))


@pytest.mark.parametrize("delta", [1, -1])
def test_a_timestamp_beyond_64_bits_is_refused(delta: int) -> None:
    data = reference.encode_records([Record(0, delta, None, None, [])], 0)
    base = (1 << 63) - 1 if delta > 0 else -(1 << 63)
    with pytest.raises(CorruptBatch, match=r"record 0 .* 64 bits"):
        decoded(reference.batch_of(data, 1, base_timestamp=base))


def test_the_error_names_the_record() -> None:
    third = b"\0" + reference.varint(0) + b"\xff" * 5 + b"\0\0\0"  # its offset delta has more than 32 bits
    data = reference.encode_records([ONE] * 2, NOW_MS) + reference.varint(len(third)) + third
    with pytest.raises(CorruptBatch, match="record 2 of a batch cannot be read: a variable-length number"):
        decoded(reference.batch_of(data, 3, base_timestamp=NOW_MS))


def test_keys_of_headers_must_be_text() -> None:
    data = reference.encode_records([Record(0, NOW_MS, None, None, [("ab", None)])], NOW_MS)
    with pytest.raises(CorruptBatch, match="UTF-8"):
        decoded(reference.batch_of(data.replace(b"ab", b"\xed\xa0"), 1, base_timestamp=NOW_MS))
