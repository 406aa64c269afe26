"""Record batches of a Produce request as `PartDraft`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from kio.schema.errors import ErrorCode

from tidelog.record_batches.batch_header import BatchHeader
from tidelog.record_batches.decode import DecodedBatch
from tidelog.record_batches.errors import (
    CorruptBatch,
    CutBatch,
    InvalidBatch,
    InvalidTimestampType,
    OldMagic,
    TooLargeBatch,
    UnsupportedBatch,
)
from tidelog.record_batches.produced import decode_produced
from tidelog.services.broker.api.produce import PartDraft, ProducerSequence
from tidelog.services.kafka.protocol.produce_messages import ProducePart

PRODUCER_PREFIX = "kafka:"
"""Begins the ids of Kafka's producers in the table of sequences. No id of an HTTP client has a colon."""
_CODES: Mapping[type[ValueError], ErrorCode] = {
    CorruptBatch: ErrorCode.corrupt_message,
    CutBatch: ErrorCode.invalid_record,
    InvalidBatch: ErrorCode.invalid_record,
    InvalidTimestampType: ErrorCode.invalid_timestamp,
    TooLargeBatch: ErrorCode.message_too_large,
    OldMagic: ErrorCode.invalid_record,
    UnsupportedBatch: ErrorCode.unsupported_compression_type,
}
"""Every error of `record_batches`."""


@dataclass(frozen=True)
class RefusedPart:
    """Why the records of a part are not appended."""

    error: ErrorCode
    message: str


def drafts(parts: Sequence[ProducePart], bytes_max: int) -> Sequence[PartDraft | RefusedPart]:
    """Each part, decoded. All records together may have `bytes_max` when they are decompressed."""
    found: list[PartDraft | RefusedPart] = []
    for part in parts:
        try:
            decoded = decode_produced(pa.py_buffer(part.records or b""), bytes_max)
        except tuple(_CODES) as error:
            found.append(RefusedPart(_CODES[type(error)], str(error)))
        else:
            bytes_max -= decoded.raw_bytes
            found.append(_draft(part, decoded))
    return found


def _draft(part: ProducePart, decoded: DecodedBatch) -> PartDraft:
    """The batch as it was sent is copied, so that it does not keep the whole request in memory."""
    header, records = decoded.header, pa.Table.from_batches([decoded.records])
    sent = bytes(part.records or b"")
    return PartDraft(part.topic, part.partition, records, records.nbytes, _sequence(header), sent)


def _sequence(header: BatchHeader) -> ProducerSequence | None:
    if header.producer_id < 0:
        return None
    producer = f"{PRODUCER_PREFIX}{header.producer_id}"
    return ProducerSequence(producer, header.producer_epoch, header.base_sequence, wraps=True)
