"""Fetched records as record batches: those that producers sent, with their place in the log, or encoded from Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.record_batches.encode import BatchRules, empty_batch, encode_batches
from tidelog.record_batches.produced import at_place
from tidelog.services.broker.api.fetch import Fetched, FetchedPart, SentBatch
from tidelog.services.kafka.protocol.api import Buffer
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
    records = _placed(found.sent, rules) if found.sent else _batches(found, part.begin, rules)
    return KafkaPart(
        part.topic,
        part.partition,
        high_watermark=found.high_watermark,
        log_start_offset=found.log_start_offset,
        records=list(records),
    )


def _placed(sent: Sequence[SentBatch], rules: BatchRules) -> Iterator[Buffer]:
    for batch in sent:
        yield from at_place(batch.data, batch.base_offset, rules.leader_epoch)


def _batches(found: Fetched, offset: int, rules: BatchRules) -> Iterator[Buffer]:
    """The last batch reaches to the next offset, also over records that compaction removed; without it the client would
    ask for them for ever."""
    last = len(found.batches) - 1
    for at, batch in enumerate(found.batches):
        next_offset = found.next_offset if at == last else None
        yield from (memoryview(each) for each in encode_batches(batch, rules, next_offset))
    if not found.batches and found.next_offset > offset:
        yield memoryview(empty_batch(offset, found.next_offset, rules.leader_epoch))
