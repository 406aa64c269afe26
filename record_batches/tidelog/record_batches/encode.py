"""Encodes records as record batches. No record is touched in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from tidelog.record_batches import native
from tidelog.record_batches.batch_header import (
    CRC_BEGINS_AT,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    pack_header,
)
from tidelog.record_batches.compression import compressed

OFFSET_DELTA_MAX = (1 << 31) - 1
_LOG_APPEND_TIME = 0x08


@dataclass(frozen=True)
class BatchRules:
    """How records become batches. `bytes_max`: of a batch before compression; a larger record is a batch of its own."""

    leader_epoch: int
    bytes_max: int = 1 << 20
    codec: Codec = Codec.NONE
    has_log_append_time: bool = False


def encode_batches(records: pa.RecordBatch, rules: BatchRules, next_offset: int | None = None) -> Iterator[pa.Buffer]:
    """`records` (`RECORD_SCHEMA`) as batches. The last batch reaches up to `next_offset` - 1, so that a client whose
    next record was compacted away goes on behind it; None: up to the last record."""
    rows = _Rows(records)
    at = 0
    while at < records.num_rows:
        extent = native.measure_rows(rows.native, at, records.num_rows, rules.bytes_max)
        end = at + extent.rows
        last = rows.offset(end - 1)
        if end == records.num_rows and next_offset is not None:
            last = min(next_offset - 1, rows.offset(at) + OFFSET_DELTA_MAX)
        yield _batch(rows, at, extent, last, rules)
        at = end


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int) -> pa.Buffer:
    """A batch without records that covers the offsets `base_offset` .. `next_offset` - 1, all compacted away. A client
    goes on at `next_offset`, or behind the 2^31 offsets that a batch can cover."""
    last_delta = min(next_offset - 1 - base_offset, OFFSET_DELTA_MAX)
    room = pa.allocate_buffer(HEADER_BYTES)
    _write_header(
        room,
        BatchHeader(
            base_offset=base_offset,
            length=HEADER_BYTES,
            leader_epoch=leader_epoch,
            crc=0,
            attributes=Codec.NONE,
            last_offset_delta=last_delta,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
        ),
    )
    return room


class _Rows:
    """`records` as `struct rows`. Keeps the arrays alive whose addresses it holds."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self._offsets, timestamps, keys, values, headers = (records.column(at) for at in range(5))
        self._timestamps = timestamps.cast(pa.int64())
        self._kept: list[pa.Array[Any]] = [keys, values]
        self.native = native.Rows(
            offsets=_address(self._offsets),
            timestamps=_address(self._timestamps),
            keys=_binary(keys),
            values=_binary(values),
        )
        if headers.null_count < len(headers):
            self._add_headers(cast("pa.ListArray[Any]", headers))

    def offset(self, row: int) -> int:
        return int(self._offsets[row].as_py())

    def timestamp(self, row: int) -> int:
        return int(self._timestamps[row].as_py())

    def _add_headers(self, headers: pa.ListArray[Any]) -> None:
        # a null list may cover elements; `flatten` leaves them out
        pairs = cast("pa.StructArray", headers.flatten())
        keys, values = pairs.field(0), pairs.field(1)
        lengths = pc.fill_null(pc.list_value_length(headers), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        self._kept += [keys, values, ends]
        self.native.header_ends = _address(ends)
        self.native.header_keys, self.native.header_values = _binary(keys), _binary(values)


def _address(array: pa.Array[Any]) -> int:
    """Of the first value of an array of fixed width."""
    return _start(array.buffers()[1]) + array.offset * (int(array.type.bit_width) // 8)


def _start(buffer: pa.Buffer | None) -> int:
    return int(buffer.address) if buffer else 0


def _binary(array: pa.Array[Any]) -> native.Binary:
    validity, ends, data = array.buffers()
    return native.Binary(
        ends=_start(ends) + 4 * array.offset,
        data=_start(data),
        validity=_start(validity) if array.null_count else 0,
        at=array.offset,
    )


def _batch(rows: _Rows, at: int, extent: native.Extent, last: int, rules: BatchRules) -> pa.Buffer:
    """The records are written behind the room for the header, so that uncompressed ones are copied once only."""
    batch = pa.allocate_buffer(HEADER_BYTES + extent.bytes)
    native.encode_rows(rows.native, at, extent.rows, batch.address + HEADER_BYTES)
    if rules.codec is not Codec.NONE:
        data = compressed(rules.codec, batch.slice(HEADER_BYTES))
        batch = pa.py_buffer(bytearray(HEADER_BYTES) + memoryview(data))
    base = rows.offset(at)
    header = BatchHeader(
        base_offset=base,
        length=batch.size,
        leader_epoch=rules.leader_epoch,
        crc=0,
        attributes=rules.codec | (_LOG_APPEND_TIME if rules.has_log_append_time else 0),
        last_offset_delta=last - base,
        base_timestamp=rows.timestamp(at),
        max_timestamp=extent.timestamp_max,
        count=extent.rows,
    )
    _write_header(batch, header)
    return batch


def _write_header(batch: pa.Buffer, header: BatchHeader) -> None:
    """Write `header`, with the checksum of what follows it."""
    room = memoryview(batch).cast("B")
    room[:HEADER_BYTES] = pack_header(header)
    room[:HEADER_BYTES] = pack_header(replace(header, crc=crc32c(room[CRC_BEGINS_AT:])))
