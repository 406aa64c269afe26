"""Record batches as a client of Kafka's protocol sends and reads them, in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cramjam
from tests.record_batches.reference import Record, batch_of, crc32c, decode_records, encode_records

BEGAN_MS = 1_700_000_000_000
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODECS: Mapping[int, Callable[[bytes], Any]] = {
    0: bytes,
    1: cramjam.gzip.decompress,
    3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}
"""A batch that is hot is served with the compression that its producer chose."""
CONTROL, TRANSACTIONAL = 0x20, 0x10


@dataclass(frozen=True)
class Producer:
    """Whose batch it is: `producer_id`, epoch and the first sequence."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


def records_of(*values: bytes) -> Sequence[Record]:
    """One record a value, with a key, a header and a time of its own."""
    return [
        Record(at, BEGAN_MS + at, b"k%d" % at, value, [("h", value), ("none", None)]) for at, value in enumerate(values)
    ]


def sent(records: Sequence[Record], producer: Producer = Producer(), attributes: int = 0) -> bytes:
    """`records` as one batch."""
    batch = batch_of(encode_records(records, BEGAN_MS), len(records), base_timestamp=BEGAN_MS, attributes=attributes)
    head, covered = batch[:17], bytearray(batch[21:])
    struct.pack_into(">qhi", covered, 22, producer.producer_id, producer.epoch, producer.sequence)
    return head + struct.pack(">I", crc32c(bytes(covered))) + bytes(covered)


def sent_values(*values: bytes) -> bytes:
    return sent(records_of(*values))


def received(data: bytes | None) -> Sequence[Record]:
    """The records of all batches in `data`, with offsets instead of their differences."""
    return [record for batch in _batches(data or b"") for record in batch]


def _batches(data: bytes) -> Iterator[Sequence[Record]]:
    while data:
        base, length, _, magic, crc, attributes, _, first_ms, *_, count = _HEADER.unpack_from(data)
        assert (magic, attributes & ~7) == (2, 0)
        batch, data = data[: 12 + length], data[12 + length :]
        assert crc == crc32c(batch[21:])
        body = bytes(_CODECS[attributes & 7](batch[_HEADER.size :]))
        records = decode_records(body, count, first_ms)
        yield [replace(record, offset_delta=base + record.offset_delta) for record in records]
