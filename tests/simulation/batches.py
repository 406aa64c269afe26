"""The records of a simulation: batches of idempotent producers. The value of each record names its batch."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.storage.layout import TopicPartition
from tidelog.storage.wal.wal_entry import ProducerMark, Span, WalHeader

PARTITIONS = 3
TOPICS = {"t": "first", "u": "second"}
"""The names of the topics, by id."""


def topic_id_of(partition: int) -> str:
    """The topic of a partition. Partitions of different topics have different numbers here."""
    return "t" if partition < 2 else "u"


@dataclass(frozen=True, order=True)
class Batch:
    """Sequence `sequence` of `producer`: `count` records for one partition."""

    producer: str
    sequence: int
    partition: int
    count: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(topic_id_of(self.partition), self.partition)

    @property
    def value(self) -> bytes:
        """The value of its records."""
        return f"{self.producer} {self.sequence}".encode()


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
