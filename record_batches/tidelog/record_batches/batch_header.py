"""The header of a record batch (magic 2). Source: kafka.apache.org/documentation, "Record Batch"."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

_FIELDS = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _FIELDS.size
"""61: from the base offset to the number of records."""
LENGTH_ENDS_AT = 12
"""The batch's length counts the bytes after it."""
CRC_BEGINS_AT = 21
"""The CRC covers the bytes from the attributes on, so the offset and the leader epoch can change without it."""
MAGIC_AT = 16
MAGIC = 2
NO_PRODUCER = -1
NO_TIMESTAMP = -1

_CODEC_BITS, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40


class Codec(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True)
class BatchHeader:
    """The fields of a header. `length`: the bytes of the whole batch."""

    base_offset: int
    length: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    base_sequence: int = NO_PRODUCER
    count: int = 0

    @property
    def codec_number(self) -> int:
        """One of `Codec`, if it is known."""
        return self.attributes & _CODEC_BITS

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)


def unpack_header(batch: memoryview) -> BatchHeader:
    """The header of a batch of magic 2, which has `HEADER_BYTES` at least."""
    base_offset, length, leader_epoch, _, crc, *rest = _FIELDS.unpack_from(batch)
    return BatchHeader(base_offset, LENGTH_ENDS_AT + length, leader_epoch, crc, *rest)


def pack_header(header: BatchHeader) -> bytes:
    """The bytes of `header`."""
    return _FIELDS.pack(
        header.base_offset,
        header.length - LENGTH_ENDS_AT,
        header.leader_epoch,
        MAGIC,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
