"""The records of a simulation: batches of idempotent producers, identified by producer and sequence."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.storage.layout import TopicPartition
from tidelog.storage.wal.wal_entry import ProducerMark, Span, WalHeader

TOPIC_ID = "t"


@dataclass(frozen=True, order=True)
class Batch:
    """Sequence `sequence` of `producer`: `count` records for one partition."""

    producer: str
    sequence: int
    partition: int
    count: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(TOPIC_ID, self.partition)


@dataclass(frozen=True)
class Placed:
    """A batch at its offset."""

    batch: Batch
    base_offset: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.batch.count

    def span(self) -> Span:
        return Span(self.batch.topic_partition, self.base_offset, self.batch.count, 0)

    def mark(self) -> ProducerMark:
        batch = self.batch
        return ProducerMark(
            batch.topic_partition, batch.producer, 0, batch.sequence, batch.sequence + batch.count - 1, self.base_offset
        )


def placed_in(header: WalHeader) -> tuple[Placed, ...]:
    """The batches of an entry: one for each of its producer marks."""
    return tuple(
        Placed(
            Batch(
                mark.producer_id,
                mark.first_sequence,
                mark.topic_partition.partition,
                mark.last_sequence - mark.first_sequence + 1,
            ),
            mark.base_offset,
        )
        for mark in header.producers
    )
