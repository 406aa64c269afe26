"""Batches for tests: any records, any codec, made by the reference; and decoded ones as the reference's records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st
from tests.record_batches import reference
from tests.record_batches.reference import Record

from tidelog.record_batches.batch_header import Codec
from tidelog.record_batches.compression import compressed
from tidelog.record_batches.decode import DecodedBatch, batches_in, decode_batch
from tidelog.storage.records import RECORD_SCHEMA

BYTES_MAX = 1 << 20
NOW_MS = 1_700_000_000_000
INT32_MAX = (1 << 31) - 1

payloads = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3)
timestamps = st.integers(-(1 << 40), 1 << 47)
codecs = st.sampled_from(Codec)


@st.composite
def records(draw: st.DrawFn, offset_deltas: st.SearchStrategy[int] | None = None) -> list[Record]:
    """Up to eight records; their offset deltas are 0, 1, 2, ... or as drawn."""
    bodies = draw(st.lists(st.tuples(timestamps, payloads, payloads, headers), max_size=8))
    deltas = [draw(offset_deltas) if offset_deltas is not None else row for row in range(len(bodies))]
    return [Record(delta, *body) for delta, body in zip(deltas, bodies, strict=True)]


@dataclass(frozen=True)
class Made:
    """How a batch is made from records."""

    codec: Codec = Codec.NONE
    base_timestamp: int = NOW_MS
    base_offset: int = 0
    further_attributes: int = 0


def batch_of(found: Sequence[Record], made: Made | None = None) -> bytes:
    """The reference's batch."""
    made = made or Made()
    data = reference.encode_records(found, made.base_timestamp)
    return reference.batch_of(
        compressed(made.codec, pa.py_buffer(data)).to_pybytes(),
        len(found),
        base_timestamp=made.base_timestamp,
        attributes=made.codec | made.further_attributes,
        base_offset=made.base_offset,
    )


def decoded(data: bytes, bytes_max: int = BYTES_MAX) -> DecodedBatch:
    """The only batch in `data`. Its arrays are checked by Arrow, too."""
    (batch,) = batches_in(pa.py_buffer(data))
    found = decode_batch(batch, bytes_max)
    found.records.validate(full=True)
    return found


def records_of(batch: DecodedBatch) -> list[Record]:
    """As the reference's records."""
    times = batch.records["timestamp"].cast(pa.int64()).to_pylist()
    columns = (batch.records[name].to_pylist() for name in ("key", "value", "headers"))
    rows = zip(batch.offset_deltas.tolist(), times, *columns, strict=True)
    return [
        Record(delta, time, key, value, [(header["key"], header["value"]) for header in headers or []])
        for delta, time, key, value, headers in rows
    ]


def table_of(found: Sequence[Record], base_offset: int = 0) -> pa.RecordBatch:
    """`found` as a reader of the log gets them (`RECORD_SCHEMA`)."""
    rows = [
        {
            "offset": base_offset + record.offset_delta,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in found
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
