"""A producer's batch is checked as Kafka checks it, and gets its place without a copy."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record_batches.batches import BYTES_MAX, NOW_MS, Made, batch_of, codecs, decoded, records, records_of
from tests.record_batches.reference import Record
from tests.record_batches.test_decode import CONTROL, LOG_APPEND_TIME, ONE, TRANSACTIONAL, with_field

from tidelog.record_batches.batch_header import Codec
from tidelog.record_batches.decode import DecodedBatch
from tidelog.record_batches.errors import CorruptBatch, InvalidBatch, InvalidTimestampType, UnsupportedBatch
from tidelog.record_batches.produced import at_place, decode_produced

TWO = [ONE, Record(1, NOW_MS, None, None, [])]


def produced(data: bytes) -> DecodedBatch:
    return decode_produced(pa.py_buffer(data), BYTES_MAX)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_records_is_taken(codec: Codec) -> None:
    assert records_of(produced(batch_of(TWO, Made(codec)))) == TWO


def test_an_idempotent_producer_names_itself() -> None:
    data = with_field(with_field(batch_of(TWO), ">q", 43, 77), ">h", 51, 3)
    header = produced(with_field(data, ">i", 53, 12)).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_partition_needs_exactly_one_batch(count: int) -> None:
    with pytest.raises(InvalidBatch, match=f"exactly one record batch, not {count}"):
        produced(batch_of(TWO) * count)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (batch_of([]), "has 0 records, but 0 offsets"),
        (batch_of(TWO, Made(base_offset=5)), "base offset of a batch is 5"),
        (batch_of(TWO, Made(further_attributes=CONTROL)), "control records"),
        (batch_of(TWO, Made(further_attributes=TRANSACTIONAL)), "transactions are not supported"),
        (with_field(batch_of(TWO), ">i", 23, 0), "has 2 records, but 1 offsets"),
        (with_field(batch_of(TWO), ">i", 23, 7), "has 2 records, but 8 offsets"),
        (with_field(batch_of(TWO), ">i", 23, -3), "but -2 offsets"),
        (with_field(batch_of(TWO), ">i", 57, -1), "-1 records"),
        (with_field(batch_of(TWO), ">q", 43, 77), "sequence -1 of producer 77 is negative"),
        (batch_of([Record(1, NOW_MS, b"", b"", []), ONE]), "do not count up"),
        (batch_of([ONE, ONE]), "do not count up"),
    ],
)
def test_a_batch_that_a_producer_may_not_send_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidBatch, match=message):
        produced(data)


def test_only_a_broker_sets_log_append_time() -> None:
    with pytest.raises(InvalidTimestampType):
        produced(batch_of(TWO, Made(further_attributes=LOG_APPEND_TIME)))


def test_what_is_no_batch_keeps_its_own_error() -> None:
    with pytest.raises(CorruptBatch):
        produced(batch_of(TWO)[:-1])
    old = bytearray(batch_of(TWO))
    old[16] = 1
    with pytest.raises(UnsupportedBatch):
        produced(bytes(old))


@given(records(), codecs, st.integers(0, (1 << 63) - 10), st.integers(-1, (1 << 31) - 1))
def test_a_batch_at_its_place_has_the_same_records(found: list[Record], codec: Codec, offset: int, epoch: int) -> None:
    data = batch_of(found, Made(codec))
    start, rest = at_place(data, offset, epoch)
    assert rest.obj is data  # not copied
    placed = decoded(start + bytes(rest))
    assert (placed.header.base_offset, placed.header.leader_epoch) == (offset, epoch)
    assert records_of(placed) == found


def test_only_the_offset_and_the_epoch_change() -> None:
    data = batch_of(TWO)
    start, rest = at_place(data, 1 << 40, 9)
    assert start + bytes(rest) == struct.pack(">q", 1 << 40) + data[8:12] + struct.pack(">i", 9) + data[16:]
