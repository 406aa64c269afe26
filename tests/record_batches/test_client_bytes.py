"""aiokafka's own encoder and decoder, as a client on both sides of the broker."""

from __future__ import annotations

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from tests.record_batches.batches import BYTES_MAX, codecs, records, records_of, table_of
from tests.record_batches.reference import Record

from tidelog.record_batches.batch_header import Codec
from tidelog.record_batches.encode import BatchRules, empty_batch, encode_batches
from tidelog.record_batches.produced import decode_produced

MANY = [
    Record(row, 1_700_000_000_000 + row, b"user-%d" % (row % 7), b'{"id": %d}' % row * 20, []) for row in range(900)
]


def written(found: list[Record], codec: Codec) -> bytes:
    """A batch as aiokafka's idempotent producer sends it."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, 77, 3, 12, 1 << 24)
    for row, record in enumerate(found):
        assert builder.append(row, record.timestamp, record.key, record.value, list(record.headers)) is not None
    return bytes(builder.build())


def read(batch: pa.Buffer) -> list[Record]:
    """The records as aiokafka's consumer reads them, with their offsets."""
    reader = DefaultRecordBatch(bytearray(batch.to_pybytes()))
    assert reader.validate_crc()
    return [Record(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in reader]


def same_times(found: list[Record]) -> list[Record]:
    """aiokafka takes a timestamp of 0 as none."""
    return [Record(one.offset_delta, one.timestamp or 1, one.key, one.value, one.headers) for one in found]


@given(records().filter(bool), codecs)
def test_what_aiokafka_produces_is_decoded(found: list[Record], codec: Codec) -> None:
    found = same_times(found)
    batch = decode_produced(pa.py_buffer(written(found, codec)), BYTES_MAX)
    assert records_of(batch) == found
    assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence) == (77, 3, 12)
    assert batch.header.max_timestamp == max(record.timestamp for record in found)


@given(records(), codecs)
def test_aiokafka_reads_what_is_encoded(found: list[Record], codec: Codec) -> None:
    batches = encode_batches(table_of(found), BatchRules(5, bytes_max=400, codec=codec))
    assert [record for batch in batches for record in read(batch)] == found


@pytest.mark.parametrize("codec", Codec)
def test_many_records_both_ways(codec: Codec) -> None:
    assert records_of(decode_produced(pa.py_buffer(written(MANY, codec)), BYTES_MAX)) == MANY
    batches = list(encode_batches(table_of(MANY), BatchRules(5, bytes_max=1 << 16, codec=codec)))
    assert len(batches) > 1
    assert [record for batch in batches for record in read(batch)] == MANY


def test_aiokafka_goes_on_behind_a_batch_without_records() -> None:
    batch = empty_batch(10, 15, leader_epoch=4)
    assert read(batch) == []
    assert DefaultRecordBatch(bytearray(batch.to_pybytes())).next_offset == 15
