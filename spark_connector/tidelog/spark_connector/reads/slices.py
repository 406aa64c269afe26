"""Ranges and slices: the offsets of a partition that one read takes, and where they are read from.

A `TopicLogDescription` is the broker's answer to ``/log``. The spans of a partition in segments hold its records from
``log_start_offset`` to ``cold_end``, and the broker holds the rest up to the high watermark, with no gap and no overlap
(inv. 5). A read takes the offsets ``[start, end)`` of each partition as slices. A `ColdSlice` is read from a segment in
the bucket, which many partitions share; a `HotSlice` is fetched from the broker by offset. The border between them
comes from one answer, and a hot offset can still be fetched after it was archived. So each record is read exactly once
while producing and archiving continue.

All functions here are pure, except that `report_loss` may log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from tidelog.storage.errors import Invalid, OutOfRange
from tidelog.wire.topic_log import PartitionLogDescription, SegmentDescription, SpanDescription, TopicLogDescription
from tidelog.wire.topics import ListedTopic, TopicDescription

reads_logger = logging.getLogger("tidelog.spark_connector")

OFFSETS_PER_TASK = 500_000
"""A task takes slices up to this many offsets, unless the options say otherwise."""


class DataLoss(OutOfRange):
    """Records that a read asked for are not in the log. It carries the range that the log holds."""


@dataclass(frozen=True)
class TopicRef:
    """The topic of a read. `timestamp_type` is Kafka's number: 0 for CreateTime, 1 for LogAppendTime."""

    name: str
    topic_id: str
    timestamp_type: int

    @staticmethod
    def of(topic: TopicDescription | ListedTopic) -> TopicRef:
        log_append_time = topic.configs.get("message.timestamp.type") == "LogAppendTime"
        return TopicRef(topic.name, topic.topic_id, int(log_append_time))


@dataclass(frozen=True)
class PartitionRange:
    """The offsets ``[start, end)`` of a partition that one read takes."""

    ends: PartitionLogDescription
    start: int
    end: int


@dataclass(frozen=True)
class Piece:
    """The offsets ``[start, end)`` of a span."""

    span: SpanDescription
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Whether the piece is the complete span, so that no row of it needs to be filtered out."""
        return self.start <= self.span.base_offset and self.end > self.span.last_offset

    def between(self, start: int, end: int) -> Piece:
        return Piece(self.span, max(self.start, start), min(self.end, end))


@dataclass(frozen=True)
class ColdSlice:
    """Pieces of a segment, ascending by partition, none of them empty. The segment is without its list of spans."""

    segment: SegmentDescription
    pieces: tuple[Piece, ...]

    @property
    def whole(self) -> bool:
        """Whether the slice is the complete segment."""
        return len(self.pieces) == self.segment.partitions and all(piece.whole for piece in self.pieces)

    @property
    def offsets(self) -> int:
        return sum(piece.end - piece.start for piece in self.pieces)

    def after(self, partition: int, offset: int) -> ColdSlice:
        """What is left of the slice behind a record of it."""
        behind = (piece for piece in self.pieces if piece.span.partition >= partition)
        cut = (piece.between(offset + 1, piece.end) if piece.span.partition == partition else piece for piece in behind)
        return replace(self, pieces=tuple(piece for piece in cut if piece.start < piece.end))


@dataclass(frozen=True)
class HotSlice:
    """The offsets ``[start, end)`` of a partition, which are fetched from the broker."""

    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        return self.end - self.start


Slice: TypeAlias = ColdSlice | HotSlice


def bounded_range(
    topic: str,
    ends: PartitionLogDescription,
    start: int,
    end: int,
    *,
    fail_on_data_loss: bool,
    ends_may_cross: bool = False,
) -> PartitionRange:
    """The part of ``[start, end)`` that the log holds. Raises `DataLoss` if offsets are missing; with
    `fail_on_data_loss` off it only logs a warning. Raises `Invalid` if ``start > end``; with `ends_may_cross` (the ends
    were found by time) that is an empty range."""
    name = f"{topic}-{ends.partition}"
    if start > end and not ends_may_cross:
        raise Invalid(f"{name}: starting offset {start} is after ending offset {end}", field="startingOffsets")
    low, high = ends.log_start_offset, ends.high_watermark
    if start < low or start > high or end > high:
        report_loss(name, start, end, low, high, fail=fail_on_data_loss)
    start = min(max(start, low), high)
    return PartitionRange(ends, start, max(start, min(end, high)))


def report_loss(name: str, start: int, end: int, low: int, high: int, *, fail: bool) -> None:
    """Raise `DataLoss`, or log it and return."""
    text = f"{name}: the read takes offsets [{start}, {end}), but the log holds [{low}, {high})"
    if fail:
        raise DataLoss(
            f"{text}; the others were deleted by retention or never existed. Ask for offsets in that range, or set "
            "failOnDataLoss=false to read the records that exist",
            log_start_offset=low,
            high_watermark=high,
        )
    reads_logger.warning("%s; the read takes the records that exist (failOnDataLoss=false)", text)


def slices_of(log: TopicLogDescription, ranges: Iterable[PartitionRange]) -> list[Slice]:
    """The slices of the ranges: cold below the cold ends, one for each segment, and hot from there on."""
    wanted = {found.ends.partition: found for found in ranges}
    cold = (ColdSlice(_bare(segment), tuple(_pieces(segment, wanted))) for segment in log.segments)
    hot = (HotSlice(number, max(each.start, each.ends.cold_end), each.end) for number, each in wanted.items())
    return [*(each for each in cold if each.pieces), *(each for each in hot if each.start < each.end)]


def through_broker(ranges: Iterable[PartitionRange]) -> list[Slice]:
    """The ranges as hot slices, for a store that only the broker can reach."""
    return [HotSlice(each.ends.partition, each.start, each.end) for each in ranges if each.start < each.end]


def _bare(segment: SegmentDescription) -> SegmentDescription:
    return msgspec.structs.replace(segment, spans=())


def _pieces(segment: SegmentDescription, wanted: Mapping[int, PartitionRange]) -> Iterator[Piece]:
    for span in segment.spans:
        if found := wanted.get(span.partition):
            start = max(span.base_offset, found.start)
            end = min(span.last_offset + 1, found.end, found.ends.cold_end)
            if start < end:
                yield Piece(span, start, end)


def offsets_per_task(slices: Sequence[Slice], tasks_min: int | None, records_max: int | None) -> int:
    """The most offsets that a task takes: `OFFSETS_PER_TASK`, or what Kafka's minPartitions and maxRecordsPerPartition
    ask for."""
    limits = [records_max] if records_max else []
    if tasks_min:
        limits.append(max(1, sum(each.offsets for each in slices) // tasks_min))
    return min(limits, default=OFFSETS_PER_TASK)


def dealt_to_tasks(slices: Sequence[Slice], limit: int) -> list[tuple[Slice, ...]]:
    """Slices in order, small ones together in a task. Slices of more than `limit` offsets are cut; then several tasks
    open the same segment."""
    tasks: list[tuple[Slice, ...]] = []
    task: tuple[Slice, ...] = ()
    offsets = 0
    for each in (part for whole in slices for part in _cut(whole, limit)):
        if task and offsets + each.offsets > limit:
            tasks.append(task)
            task, offsets = (), 0
        task, offsets = (*task, each), offsets + each.offsets
    return [*tasks, task] if task else tasks


def _cut(whole: Slice, limit: int) -> Iterator[Slice]:
    """Parts of a slice with at most `limit` offsets each."""
    if whole.offsets <= limit:
        yield whole
    elif isinstance(whole, HotSlice):
        for start in range(whole.start, whole.end, limit):
            yield replace(whole, start=start, end=min(whole.end, start + limit))
    else:
        yield from _cut_cold(whole, limit)


def _cut_cold(whole: ColdSlice, limit: int) -> Iterator[ColdSlice]:
    part: list[Piece] = []
    left = limit
    for piece in whole.pieces:
        start = piece.start
        while start < piece.end:
            part.append(piece.between(start, start + left))
            start, left = part[-1].end, left - (part[-1].end - part[-1].start)
            if left == 0:
                yield replace(whole, pieces=tuple(part))
                part, left = [], limit
    if part:
        yield replace(whole, pieces=tuple(part))
