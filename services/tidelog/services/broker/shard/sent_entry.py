"""The batches of a WAL entry as their producers sent them, to be handed out again while they are recent.

A client of the protocol in which they came reads them without any encoding, and compressed as their producer chose.
They are kept beside the entry's records (`hot_tail.py`), within the same bound of bytes, and are not in the bucket."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelog.services.broker.api.fetch import SentBatch
from tidelog.storage.layout import TopicPartition

BATCH_OVERHEAD_BYTES = 256
"""Memory of a batch beside its bytes: Python's objects."""


@dataclass(frozen=True)
class SentEntry:
    """`batches` of each partition in the order of their offsets. There may be offsets between two of them, of records
    that came by another protocol."""

    batches: Mapping[TopicPartition, Sequence[SentBatch]]
    size_bytes: int

    def from_offset(self, place: TopicPartition, offset: int) -> Iterator[SentBatch]:
        """The batches without a gap between them from the one that holds `offset`; none if no batch holds it."""
        batches = self.batches.get(place, ())
        for at in range(bisect_right(batches, offset, key=_next_offset), len(batches)):
            if batches[at].base_offset > offset:
                return
            yield batches[at]
            offset = batches[at].next_offset


def _next_offset(batch: SentBatch) -> int:
    return batch.next_offset
