"""A decoder and an encoder of record batches in plain Python, to compare the fast ones with."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Record:
    offset_delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Refused(ValueError):
    """Bytes that are not records."""


class Reader:
    """Reads from `data`, up to its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise Refused("cut off")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int) -> int:
        value = 0
        for shift in range(0, bits, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if value >> bits:
                raise Refused("varint")
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
        raise Refused("varint")

    def bytes(self, least: int) -> bytes | None:
        size = self.varint(32)
        if size < least:
            raise Refused("length")
        return None if size < 0 else self.take(size)


def decode_records(data: bytes, count: int, base_timestamp: int) -> Sequence[Record]:
    """The records in `data`. Raises `Refused`."""
    reader = Reader(data)
    records = [_record(reader, base_timestamp) for _ in range(count)]
    if reader.at < len(data):
        raise Refused("left over")
    return records


def _record(outer: Reader, base_timestamp: int) -> Record:
    size = outer.varint(32)
    if size < 0:
        raise Refused("length")
    reader = Reader(outer.take(size))
    reader.take(1)
    timestamp = base_timestamp + reader.varint(64)
    if not -(1 << 63) <= timestamp < 1 << 63:
        raise Refused("timestamp")
    offset_delta, key, value = reader.varint(32), reader.bytes(-1), reader.bytes(-1)
    count = reader.varint(32)
    if count < 0:
        raise Refused("headers")
    headers = [_header(reader) for _ in range(count)]
    if reader.at < size:
        raise Refused("longer than its parts")
    return Record(offset_delta, timestamp, key, value, headers)


def _header(reader: Reader) -> tuple[str, bytes | None]:
    key = reader.bytes(0)
    assert key is not None
    try:
        return key.decode(), reader.bytes(-1)
    except UnicodeDecodeError as error:
        raise Refused("utf-8") from error


def encode_records(records: Sequence[Record], base_timestamp: int) -> bytes:
    return b"".join(map(_with_size, (_encoded(record, base_timestamp) for record in records)))


def _encoded(record: Record, base_timestamp: int) -> bytes:
    parts = [b"\0", varint(record.timestamp - base_timestamp), varint(record.offset_delta)]
    parts += [_sized(record.key), _sized(record.value), varint(len(record.headers))]
    return b"".join([*parts, *(_sized(key.encode()) + _sized(value) for key, value in record.headers)])


def _with_size(data: bytes) -> bytes:
    return varint(len(data)) + data


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else _with_size(data)


def varint(value: int) -> bytes:
    bits, out = (value << 1) ^ (value >> 63), bytearray()
    bits &= (1 << 64) - 1
    while bits >= 0x80:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*out, bits])


def crc32c(data: bytes) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def batch_of(records: bytes, count: int, *, base_timestamp: int, attributes: int = 0, base_offset: int = 0) -> bytes:
    """A batch of magic 2 around `records`, which may be compressed."""
    covered = (
        struct.pack(">hiqqqhii", attributes, count - 1, base_timestamp, base_timestamp, -1, -1, -1, count) + records
    )
    return struct.pack(">qiibI", base_offset, 9 + len(covered), -1, 2, crc32c(covered)) + covered
