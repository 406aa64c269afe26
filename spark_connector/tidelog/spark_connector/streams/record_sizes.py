"""How many offsets hold about so many bytes of records, estimated from a few records of each topic."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.streams.admission import Backlog, Backlogs, TopicPartition
from tidelog.storage.errors import NotFound, OutOfRange

SAMPLED_OFFSETS = 100
SAMPLED_TOPICS_MAX = 8
UNSAMPLED_RECORD_BYTES = 1_024
"""Taken for a record if the records to be sampled were deleted meanwhile."""


def offsets_in(bytes_max: int, backlogs: Backlogs, connection: BrokerConnection) -> int:
    """At least 1. The first records that would be read next are sampled, in the partition with the largest backlog of
    each of the topics with the largest ones."""
    largest: dict[str, tuple[TopicPartition, Backlog]] = {}
    for place, backlog in sorted(backlogs.items(), key=lambda item: item[1].offsets):
        largest[place[0]] = place, backlog
    sampled = sorted(largest.values(), key=lambda item: -item[1].offsets)[:SAMPLED_TOPICS_MAX]
    weights = [(backlog.offsets, _bytes_per_offset(place, backlog, connection)) for place, backlog in sampled]
    return max(1, int(bytes_max / _mean(weights)))


def _mean(weights: Iterable[tuple[int, float]]) -> float:
    pairs = [(offsets, size) for offsets, size in weights if offsets]
    total = sum(offsets for offsets, _ in pairs)
    return sum(offsets * size for offsets, size in pairs) / total if total else UNSAMPLED_RECORD_BYTES


def _bytes_per_offset(place: TopicPartition, backlog: Backlog, connection: BrokerConnection) -> float:
    if not backlog.offsets:
        return UNSAMPLED_RECORD_BYTES
    end = min(backlog.end, backlog.start + SAMPLED_OFFSETS)
    try:
        fetched = connection.fetch(*place, backlog.start, end)
    except (OutOfRange, NotFound):
        return UNSAMPLED_RECORD_BYTES
    size_bytes = sum(batch.nbytes for batch in fetched.batches)
    return max(1.0, size_bytes / max(1, fetched.next_offset - backlog.start))
