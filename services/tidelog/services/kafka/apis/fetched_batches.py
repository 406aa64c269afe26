"""Fetched records as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelog.record_batches.encode import BatchRules, empty_batch, encode_batches
from tidelog.services.broker.api.fetch import Fetched, FetchedPart
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.fetch_messages import KafkaPart


def encoded_parts(fetched: Sequence[FetchedPart], epochs: Sequence[int]) -> Sequence[KafkaPart]:
    """The answer for each part. `epochs`: of the leader of each."""
    return [_encoded(each, BatchRules(epoch)) for each, epoch in zip(fetched, epochs, strict=True)]


def _encoded(each: FetchedPart, rules: BatchRules) -> KafkaPart:
    part, found = each.part, each.fetched
    if each.error:
        return KafkaPart(part.topic, part.partition, error_code(each.error, Family.READ))
    if found is None:
        return KafkaPart(part.topic, part.partition)  # its turn comes with the next request
    records = [memoryview(batch) for batch in _batches(found, part.begin, rules)]
    return KafkaPart(
        part.topic,
        part.partition,
        high_watermark=found.high_watermark,
        log_start_offset=found.log_start_offset,
        records=records,
    )


def _batches(found: Fetched, offset: int, rules: BatchRules) -> Iterator[pa.Buffer]:
    """The last batch reaches to the next offset, also over records that compaction removed; without it the client would
    ask for them for ever."""
    last = len(found.batches) - 1
    for at, batch in enumerate(found.batches):
        yield from encode_batches(batch, rules, found.next_offset if at == last else None)
    if not found.batches and found.next_offset > offset:
        yield empty_batch(offset, found.next_offset, rules.leader_epoch)
