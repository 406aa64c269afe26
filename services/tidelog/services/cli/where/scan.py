"""Reads those parts of a topic that can match an expression, and yields the matching records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tidelog.services.cli.where.bounds import HIGHEST, Range, Span, TimedSpan, bounds_of, ranges
from tidelog.services.cli.where.selection import Selection
from tidelog.wire.topic_log import SegmentDescription, SpanDescription, TopicLogRequest

if TYPE_CHECKING:
    from tidelog.client import Admin, Batch, Consumer, TopicPartition

POLL_S = 1.0


@dataclass
class Scan:
    """One pass over the topic of `consumer` from its positions on. Without `follow` it ends at the present ends.
    `on_read` gets the number of offsets that were read; `planned` says how many there are, or None if it follows."""

    consumer: Consumer
    admin: Admin
    selection: Selection
    follow: bool
    on_read: Callable[[int], None] = lambda _: None
    _open: dict[TopicPartition, list[Range]] = field(init=False)
    _spans_of: dict[str, dict[int, Sequence[TimedSpan]]] = field(init=False, default_factory=dict)
    _since_of: dict[str, Mapping[int, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._bounds, self._ends = bounds_of(self.selection.expression), dict(self.consumer.end_offsets())
        self._open = {}
        for partition, start in self.consumer.positions.items():
            self._open[partition] = self._ranges(partition, start, HIGHEST if self.follow else self._ends[partition])
            self._go_on(partition)

    @property
    def planned(self) -> int | None:
        """How many offsets are still to be read; None if the scan follows the log."""
        every = [one for parts in self._open.values() for one in parts]
        return None if any(end == HIGHEST for _, end in every) else sum(end - start for start, end in every)

    def batches(self) -> Iterator[Batch]:
        """Batches of matching records, without empty ones."""
        while any(self._open.values()):
            batch = self.consumer.poll(POLL_S)
            matching = None if batch is None else self._matching(batch)
            self._pass_empty_ends()
            if matching is not None and matching.records.num_rows:
                yield matching

    def _matching(self, batch: Batch) -> Batch | None:
        left = self._left_of(batch.topic_partition)
        if not left:
            return None
        start, end = left[0]
        offsets = batch.records.column("offset").to_numpy()
        first, last = (int(np.searchsorted(offsets, edge)) for edge in (start, end))
        within = batch.records.slice(first, last - first)
        self.on_read(min(batch.next_offset, end) - start)
        left[0] = (min(batch.next_offset, end), end)
        if batch.next_offset >= end:
            self._next_range(batch.topic_partition)
        return replace(batch, records=self.selection.matching(within, batch.partition))

    def _pass_empty_ends(self) -> None:
        """A fetch can move a position without a record, where compaction removed all of them."""
        for partition, position in self.consumer.positions.items():
            left = self._left_of(partition)
            if left and position >= left[0][1]:
                self.on_read(left[0][1] - left[0][0])
                self._next_range(partition)

    def _left_of(self, partition: TopicPartition) -> list[Range]:
        """The ranges that are still to be read. A follower also reads partitions that were added meanwhile."""
        if partition not in self._open:
            self._ends[partition] = 0
            self._open[partition] = self._ranges(partition, 0, HIGHEST) if self.follow else []
        return self._open[partition]

    def _next_range(self, partition: TopicPartition) -> None:
        self._open[partition].pop(0)
        self._go_on(partition)

    def _go_on(self, partition: TopicPartition) -> None:
        """Seek to the next range; at the end of the log there is nothing to fetch."""
        left = self._open[partition]
        position = left[0][0] if left else self._ends[partition]
        if self.consumer.position(partition) != position:
            self.consumer.seek(partition, position)

    def _ranges(self, place: TopicPartition, start: int, end: int) -> list[Range]:
        (topic, partition), bounds = place, self._bounds
        if bounds.empty or not bounds.partition.first <= partition <= bounds.partition.last:
            return []
        if not bounds.by_time:
            return ranges(start, end, bounds, ())
        first = max(start, self._since(topic).get(partition, 0))
        return ranges(first, end, bounds, self._spans(topic, partition))

    def _since(self, topic: str) -> Mapping[int, int]:
        """The first offset within the times in each partition that the topic had when this was asked for, once."""
        if topic not in self._since_of:
            self._since_of[topic] = self.admin.offsets(topic, f"@{max(0, self._bounds.timestamp.first)}")
        return self._since_of[topic]

    def _spans(self, topic: str, partition: int) -> Sequence[TimedSpan]:
        """The archived spans of a partition. All partitions of its topic are asked for together, once."""
        if topic not in self._spans_of:
            log = self.admin.topic_log(topic, TopicLogRequest(fresh=False))
            self._spans_of[topic] = {number: _timed(spans) for number, spans in log.spans().items()}
        return self._spans_of[topic].get(partition, ())


def _timed(spans: Sequence[tuple[SegmentDescription, SpanDescription]]) -> Sequence[TimedSpan]:
    return [TimedSpan(span.last_offset, Span(segment.min_timestamp, segment.max_timestamp)) for segment, span in spans]
