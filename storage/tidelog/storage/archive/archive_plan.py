"""Plans a pass of the archiver, purely, from the WAL entries that it read.

Records stay slices of the entries' tables, so a plan copies nothing and does no work per record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelog.storage.errors import Corrupt, RecordsLost
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import Loss, past_losses
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.wal.wal_entry import ProducerMark, Span, WalEntry


@dataclass(frozen=True)
class Piece:
    """The records of one span."""

    span: Span
    records: pa.Table


@dataclass(frozen=True)
class PartitionPlan:
    """The records of one partition in the entries, offsets dense and ascending (inv. 4)."""

    topic_partition: TopicPartition
    pieces: tuple[Piece, ...]
    producers: tuple[ProducerMark, ...]

    @property
    def base_offset(self) -> int:
        return self.pieces[0].span.base_offset

    @property
    def next_offset(self) -> int:
        return self.pieces[-1].span.next_offset

    def records_from(self, cold_end: int, losses: Sequence[Loss] = ()) -> pa.Table:
        """The records (`RECORD_SCHEMA`) that a manifest up to `cold_end`, with `losses`, lacks. Raises `RecordsLost` if
        records in between are in neither (inv. 5)."""
        if past_losses(losses, cold_end) < self.base_offset:
            partition = f"{self.topic_partition.topic_id}/{self.topic_partition.partition}"
            text = f"offsets {cold_end} to {self.base_offset - 1} are neither in a segment nor in the WAL"
            raise RecordsLost(partition, text, first_offset=cold_end, next_offset=self.base_offset)
        lacking = [piece for piece in self.pieces if piece.span.next_offset > cold_end]
        tables = [piece.records.slice(max(0, cold_end - piece.span.base_offset)) for piece in lacking]
        return pa.concat_tables([RECORD_SCHEMA.empty_table(), *tables])

    def producers_after(self, before: Sequence[ProducerMark], producers_max: int) -> tuple[ProducerMark, ...]:
        """The last mark of each producer, by offset, including the marks `before` of a manifest. Beyond `producers_max`
        the oldest are dropped: their retries are long over."""
        last = {mark.producer_id: mark for mark in sorted((*before, *self.producers), key=_offset)}
        return tuple(sorted(last.values(), key=_offset)[-producers_max:])


def plan_archive(entries: Iterable[WalEntry]) -> tuple[PartitionPlan, ...]:
    """One plan per partition, in the order of partitions. `entries` are neighbours in the log; START entries hold no
    records. Raises `Corrupt` where offsets are not dense."""
    pieces: defaultdict[TopicPartition, list[Piece]] = defaultdict(list)
    producers: defaultdict[TopicPartition, list[ProducerMark]] = defaultdict(list)
    for entry in entries:
        for span in entry.header.spans:
            before = pieces[span.topic_partition]
            if before and before[-1].span.next_offset != span.base_offset:
                name = f"entry {entry.header.seq} of shard {entry.header.shard}"
                raise Corrupt(name, f"begins at offset {span.base_offset}, not {before[-1].span.next_offset} (inv. 4)")
            before.append(Piece(span, entry.records_of(span)))
        for mark in entry.header.producers:
            producers[mark.topic_partition].append(mark)
    return tuple(PartitionPlan(place, tuple(pieces[place]), tuple(producers[place])) for place in sorted(pieces))


def _offset(mark: ProducerMark) -> int:
    return mark.base_offset
