"""Records become batches that the plain Python decoder reads back, within their bounds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record_batches import reference
from tests.record_batches.batches import BYTES_MAX, INT32_MAX, NOW_MS, codecs, decoded, records, records_of, table_of
from tests.record_batches.reference import Record

from tidelog.record_batches.batch_header import HEADER_BYTES, Codec, unpack_header
from tidelog.record_batches.compression import decompressed
from tidelog.record_batches.decode import DecodedBatch
from tidelog.record_batches.encode import BatchRules, empty_batch, encode_batches

RULES = BatchRules(leader_epoch=5)
FIRST = 1 << 40


def read(batch: pa.Buffer) -> tuple[DecodedBatch, list[Record]]:
    """Both decoders' result, which must be one; the records with their offsets instead of deltas."""
    found = decoded(batch.to_pybytes())
    data = decompressed(Codec(found.header.codec_number), batch.slice(HEADER_BYTES), BYTES_MAX).to_pybytes()
    judged = reference.decode_records(data, found.header.count, found.header.base_timestamp)
    assert records_of(found) == judged
    assert reference.crc32c(batch.to_pybytes()[21:]) == found.header.crc
    base = found.header.base_offset
    return found, [Record(base + one.offset_delta, one.timestamp, one.key, one.value, one.headers) for one in judged]


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Records with ascending offsets and gaps between them."""
    offset, found = 0, []
    for record in draw(records()):
        offset += draw(st.sampled_from((1, 1, 1, 2, 1_000, 1 << 33)))
        found.append(Record(offset, record.timestamp, record.key, record.value, record.headers))
    return found


@given(logs(), codecs, st.integers(0, 3), st.sampled_from((1, 150, 1 << 20)))
def test_a_slice_of_a_log_comes_back(log: list[Record], codec: Codec, skipped: int, bytes_max: int) -> None:
    rules = BatchRules(leader_epoch=5, bytes_max=bytes_max, codec=codec)
    batches = [read(batch) for batch in encode_batches(table_of(log, FIRST).slice(skipped), rules)]
    found = [record for _, part in batches for record in part]
    assert found == [
        Record(FIRST + one.offset_delta, one.timestamp, one.key, one.value, one.headers) for one in log[skipped:]
    ]
    for batch, part in batches:
        assert batch.header.leader_epoch == 5
        assert batch.header.codec_number == codec
        assert batch.header.max_timestamp == max(one.timestamp for one in part)
        assert batch.header.base_offset + batch.header.last_offset_delta == part[-1].offset_delta
        assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence) == (-1, -1, -1)
        assert batch.raw_bytes <= bytes_max or len(part) == 1


def test_batches_are_filled_up_to_their_bound() -> None:
    log = [Record(row, NOW_MS, None, b"v" * 90, []) for row in range(100)]
    sizes = [read(batch)[0].raw_bytes for batch in encode_batches(table_of(log), BatchRules(1, bytes_max=1_000))]
    assert all(900 < size <= 1_000 for size in sizes[:-1])
    assert len(sizes) == 10


def test_the_last_batch_reaches_over_a_gap_to_the_next_offset() -> None:
    (batch,) = encode_batches(table_of([Record(3, NOW_MS, b"k", b"v", [])]), RULES, next_offset=1_000)
    header = read(batch)[0].header
    assert (header.base_offset, header.last_offset_delta, header.count) == (3, 996, 1)


def test_a_gap_beyond_31_bits_is_reached_as_far_as_a_batch_can() -> None:
    (batch,) = encode_batches(table_of([Record(3, NOW_MS, b"k", b"v", [])]), RULES, next_offset=1 << 40)
    assert read(batch)[0].header.last_offset_delta == INT32_MAX


def test_a_batch_without_records_covers_a_gap() -> None:
    header = decoded(empty_batch(10, 15, leader_epoch=4).to_pybytes()).header
    assert (header.base_offset, header.last_offset_delta, header.count) == (10, 4, 0)
    assert (header.leader_epoch, header.base_timestamp, header.max_timestamp) == (4, -1, -1)
    far = unpack_header(memoryview(empty_batch(10, 1 << 40, leader_epoch=4)))
    assert far.last_offset_delta == INT32_MAX


def test_no_records_are_no_batches() -> None:
    assert list(encode_batches(table_of([]), RULES)) == []


def test_log_append_time_is_a_flag_of_the_batch() -> None:
    rules = BatchRules(1, has_log_append_time=True)
    (batch,) = encode_batches(table_of([Record(0, NOW_MS, None, None, [])]), rules)
    assert decoded(batch.to_pybytes()).header.has_log_append_time


@pytest.mark.parametrize("null", ["key", "value", "headers"])
def test_columns_of_nulls_alone(null: str) -> None:
    log = table_of([Record(row, NOW_MS, b"k", b"v", [("a", None)]) for row in range(3)])
    at = log.schema.get_field_index(null)
    log = log.set_column(at, log.schema.field(at), pa.nulls(3, log.schema.field(at).type))
    (batch,) = encode_batches(log, RULES)
    expected: list[object] | None = None if null != "headers" else []
    assert [getattr(record, null) for record in read(batch)[1]] == [expected] * 3


def test_a_null_list_that_covers_elements_has_no_headers() -> None:
    whole = table_of([Record(row, NOW_MS, b"k", b"v", [(str(row), b"x")]) for row in range(3)])
    _, ends = whole["headers"].buffers()[:2]
    lists = pa.Array.from_buffers(
        whole["headers"].type, 3, [pa.py_buffer(b"\x05"), ends], 1, children=[pa.array(whole["headers"]).values]
    )
    log = whole.set_column(4, whole.schema.field(4), lists)
    (batch,) = encode_batches(log, RULES)
    assert [list(record.headers) for record in read(batch)[1]] == [[("0", b"x")], [], [("2", b"x")]]
