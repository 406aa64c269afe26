"""Record batches of a Produce request as `PartDraft`s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from kio.schema.errors import ErrorCode

from tidelog.record_batches.batch_header import BatchHeader
from tidelog.record_batches.decode import DecodedBatch, batches_in, decode_batch
from tidelog.record_batches.errors import CorruptBatch, InvalidBatch, TooLargeBatch, UnsupportedBatch
from tidelog.services.broker.api.produce import PartDraft, ProducerSequence
from tidelog.services.kafka.protocol.produce_messages import ProducePart

PRODUCER_PREFIX = "kafka:"
"""Begins the ids of Kafka's producers in the table of sequences. No id of an HTTP client has a colon."""
_CODES: tuple[tuple[type[ValueError], ErrorCode], ...] = (
    (TooLargeBatch, ErrorCode.message_too_large),
    (UnsupportedBatch, ErrorCode.unsupported_for_message_format),
    (InvalidBatch, ErrorCode.invalid_record),
    (CorruptBatch, ErrorCode.corrupt_message),
)


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
            decoded = _only_batch(part, bytes_max)
        except (TooLargeBatch, UnsupportedBatch, InvalidBatch, CorruptBatch) as error:
            code = next(code for kind, code in _CODES if isinstance(error, kind))
            found.append(RefusedPart(code, str(error)))
        else:
            bytes_max -= decoded.raw_bytes
            found.append(_draft(part, decoded))
    return found


def _only_batch(part: ProducePart, bytes_max: int) -> DecodedBatch:
    """The batch of `part`: since version 3 of Produce there is one. Raises the errors of `record_batches`."""
    batches = list(batches_in(pa.py_buffer(part.records))) if part.records else []
    if len(batches) != 1:
        raise InvalidBatch(f"a request has {len(batches)} batches for a partition, and one is allowed")
    decoded = decode_batch(batches[0], bytes_max)
    _check(decoded.header)
    if not decoded.is_dense:
        raise InvalidBatch("the offsets of a batch are not 0, 1, 2 and so on up to its last offset")
    return decoded


def _check(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidBatch("a producer may not send control batches")
    if header.is_transactional:
        raise InvalidBatch(
            "a batch belongs to a transaction, and this broker has no transactions: unset transactional.id"
        )
    if not header.count:
        raise InvalidBatch("a batch has no records")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidBatch("a batch has a producer id and no sequence or epoch")


def _draft(part: ProducePart, decoded: DecodedBatch) -> PartDraft:
    header, records = decoded.header, pa.Table.from_batches([decoded.records])
    return PartDraft(part.topic, part.partition, records, records.nbytes, _sequence(header))


def _sequence(header: BatchHeader) -> ProducerSequence | None:
    if header.producer_id < 0:
        return None
    producer = f"{PRODUCER_PREFIX}{header.producer_id}"
    return ProducerSequence(producer, header.producer_epoch, header.base_sequence, wraps=True)
