"""A batch that a producer sent: what Kafka demands of it, and its place in the log.

The rules are those of Kafka 4.1 for a client's batch (`ProduceRequest.validateRecords`, `LogValidator.validateBatch`).
Tidelog has no transactions, so it refuses transactional batches, too.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from tidelog.record_batches.batch_header import BatchHeader, unpack_header
from tidelog.record_batches.decode import DecodedBatch, batches_in, decode_batch
from tidelog.record_batches.errors import InvalidBatch, InvalidTimestampType

_START = struct.Struct(">qii")
"""Base offset, length and leader epoch: before the bytes that the CRC covers."""


def decode_produced(data: pa.Buffer, bytes_max: int) -> DecodedBatch:
    """The one batch in `data`, the records of a partition in a produce request. Raises what `batches_in` and
    `decode_batch` raise, `InvalidBatch`, and `InvalidTimestampType`."""
    batches = list(batches_in(data))
    if len(batches) != 1:
        raise InvalidBatch(f"a partition of a produce request needs exactly one record batch, not {len(batches)}")
    _check_header(unpack_header(memoryview(batches[0])))
    found = decode_batch(batches[0], bytes_max)
    if not found.is_dense:
        raise InvalidBatch("the offsets in a batch do not count up from 0 by 1")
    return found


def at_place(batch: bytes, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """The batch with its place in the log, as two pieces. Its records are not copied and the CRC stays right."""
    _, length, _ = _START.unpack_from(batch)
    return _START.pack(base_offset, length, leader_epoch), memoryview(batch)[_START.size :]


def _check_header(header: BatchHeader) -> None:
    offsets = header.last_offset_delta + 1
    if header.base_offset != 0:
        raise InvalidBatch(f"the base offset of a batch is {header.base_offset}; a producer sends 0")
    if header.count <= 0 or offsets != header.count:
        raise InvalidBatch(f"a batch says that it has {header.count} records, but {offsets} offsets")
    if header.is_control:
        raise InvalidBatch("a client cannot write control records")
    if header.is_transactional:
        raise InvalidBatch("a batch is part of a transaction, and transactions are not supported")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidBatch(f"sequence {header.base_sequence} of producer {header.producer_id} is negative")
    if header.has_log_append_time:
        raise InvalidTimestampType("a batch has the timestamp type LogAppendTime, which only a broker sets")
