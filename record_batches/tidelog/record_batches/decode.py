"""Decodes record batches to Arrow. No record is touched in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from tidelog.record_batches import native
from tidelog.record_batches.batch_header import (
    CRC_BEGINS_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Codec,
    unpack_header,
)
from tidelog.record_batches.compression import decompressed
from tidelog.record_batches.errors import CorruptBatch, CutBatch, OldMagic, UnsupportedBatch
from tidelog.storage.records import DRAFT_SCHEMA, HEADERS, TIMESTAMP

RECORD_BYTES_MIN = 7
"""Length, attributes, both deltas, key, value and header count."""


@dataclass(frozen=True)
class DecodedBatch:
    """`records` has `DRAFT_SCHEMA`; a record without headers has null there. `offset_deltas`: one for each record, to
    be added to the base offset. `is_dense`: each record's offset is one more than that of the record before it, from
    the base offset to the batch's last offset. `raw_bytes`: the decompressed records."""

    header: BatchHeader
    records: pa.RecordBatch
    offset_deltas: npt.NDArray[np.int32]
    is_dense: bool
    raw_bytes: int


def batches_in(data: pa.Buffer) -> Iterator[pa.Buffer]:
    """The batches in `data`, one after the other. Raises `CorruptBatch`, `OldMagic`."""
    at = 0
    while at < data.size:
        batch = data.slice(at)
        _check_magic(batch)
        length = unpack_header(memoryview(batch)).length
        if not HEADER_BYTES <= length <= batch.size:
            fault = CutBatch if length > batch.size else CorruptBatch
            raise fault(f"a batch says that it has {length} bytes, but {batch.size} are there")
        yield batch.slice(0, length)
        at += length


def decode_batch(batch: pa.Buffer, bytes_max: int) -> DecodedBatch:
    """Decode one batch, as `batches_in` gives it. Raises `CorruptBatch`, `UnsupportedBatch`, and `TooLargeBatch` if its
    records have more than `bytes_max` when they are decompressed."""
    header = unpack_header(memoryview(batch))
    if crc32c(memoryview(batch)[CRC_BEGINS_AT:]) != header.crc:
        raise CorruptBatch("the checksum of a batch is wrong")
    data = decompressed(_codec(header), batch.slice(HEADER_BYTES), bytes_max)
    if not 0 <= header.count * RECORD_BYTES_MIN <= data.size:
        raise CorruptBatch(f"a batch says that it has {header.count} records, in {data.size} bytes")
    fault, totals = native.measure_records(data.address, data.size, header.count, header.base_timestamp)
    if fault:
        raise CorruptBatch(f"record {totals.bad_record} of a batch cannot be read: {native.FAULTS[fault]}")
    return _decoded(header, data, totals)


def _check_magic(batch: pa.Buffer) -> None:
    if batch.size <= MAGIC_AT:
        raise CutBatch(f"a batch is cut off after {batch.size} bytes")
    magic = memoryview(batch)[MAGIC_AT]
    if magic in {0, 1}:
        raise OldMagic(f"records of magic {magic} are not taken; a client since Kafka 0.11 sends magic {MAGIC}")
    if magic != MAGIC:
        raise CorruptBatch(f"a batch has magic {magic}, not {MAGIC}")
    if batch.size < HEADER_BYTES:
        raise CutBatch(f"a batch is cut off after {batch.size} bytes, within its header of {HEADER_BYTES}")


def _codec(header: BatchHeader) -> Codec:
    try:
        return Codec(header.codec_number)
    except ValueError:
        raise UnsupportedBatch(f"codec {header.codec_number} is not known") from None


@dataclass
class _BinaryBuffers:
    """The buffers of an array of binary with `rows` values."""

    rows: int
    data_bytes: int
    nulls: int = 0

    def __post_init__(self) -> None:
        self.ends = np.empty(self.rows + 1, np.int32)
        self.data = pa.allocate_buffer(self.data_bytes)
        self.validity = np.zeros((self.rows + 7) // 8, np.uint8)

    def array(self, kind: pa.DataType) -> pa.Array[Any]:
        validity = pa.py_buffer(self.validity.data) if self.nulls else None
        return pa.Array.from_buffers(kind, self.rows, [validity, pa.py_buffer(self.ends.data), self.data], self.nulls)


def _decoded(header: BatchHeader, data: pa.Buffer, totals: native.Totals) -> DecodedBatch:
    count = header.count
    timestamps, deltas = np.empty(count, np.int64), np.empty(count, np.int32)
    keys = _BinaryBuffers(count, totals.key_bytes, totals.null_keys)
    values = _BinaryBuffers(count, totals.value_bytes, totals.null_values)
    header_ends = np.empty(count + 1, np.int32)
    header_keys = _BinaryBuffers(totals.headers, totals.header_key_bytes)
    header_values = _BinaryBuffers(totals.headers, totals.header_value_bytes, totals.null_header_values)
    columns = native.Columns(
        timestamps=timestamps.ctypes.data,
        offset_deltas=deltas.ctypes.data,
        **_addresses("key", keys),
        **_addresses("value", values),
        header_ends=header_ends.ctypes.data,
        **_addresses("header_key", header_keys),
        **_addresses("header_value", header_values),
    )
    native.decode_records(data.address, data.size, count, header.base_timestamp, columns)
    if header.has_log_append_time:
        timestamps[:] = header.max_timestamp
    arrays = [
        pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(timestamps.data)], 0),
        keys.array(pa.binary()),
        values.array(pa.binary()),
        _headers(header_ends, header_keys, header_values),
    ]
    records = pa.RecordBatch.from_arrays(arrays, schema=DRAFT_SCHEMA)
    is_dense = bool(totals.dense) and header.last_offset_delta == count - 1
    return DecodedBatch(header, records, deltas, is_dense, data.size)


def _addresses(name: str, buffers: _BinaryBuffers) -> dict[str, int]:
    """The addresses of `struct columns` whose names begin with `name`; keys of headers have no validity."""
    found = {f"{name}_ends": buffers.ends.ctypes.data, f"{name}s": buffers.data.address}
    return found if name == "header_key" else {**found, f"{name}_validity": buffers.validity.ctypes.data}


def _headers(ends: npt.NDArray[np.int32], keys: _BinaryBuffers, values: _BinaryBuffers) -> pa.Array[Any]:
    count = len(ends) - 1
    if not keys.rows:
        return pa.nulls(count, HEADERS)
    has_headers = np.diff(ends) > 0
    fields = list(HEADERS.value_type)
    pairs = pa.StructArray.from_arrays([keys.array(pa.string()), values.array(pa.binary())], fields=fields)
    validity = pa.py_buffer(np.packbits(has_headers, bitorder="little").data)
    nulls = count - int(np.count_nonzero(has_headers))
    return pa.Array.from_buffers(HEADERS, count, [validity, pa.py_buffer(ends.data)], nulls, children=[pairs])
