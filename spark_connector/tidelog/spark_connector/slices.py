"""Ranges and slices: the offsets of a partition that one read takes, and where they are read from.

A `PartitionLogDescription` is the broker's answer to ``/log``: segments hold ``[log_start_offset, cold_end)``, the
broker holds the rest up to the high watermark, with no gap and no overlap (inv. 5). A read takes the offsets
``[start, end)`` of it as slices. A `ColdSlice` is read from a segment in the bucket; a `HotSlice` is fetched from the
broker by offset. The border between them comes from one answer, and a hot offset can still be fetched after it was
archived. So each record is read exactly once while producing and archiving continue.

All functions here are pure, except that `report_loss` may log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelog.storage.errors import Invalid, OutOfRange
from tidelog.wire.topics import ListedTopic, PartitionLogDescription, SegmentDescription, TopicDescription

reads_logger = logging.getLogger("tidelog.spark_connector")

OFFSETS_PER_TASK = 500_000
"""A task takes slices up to about this many offsets, unless the options say otherwise."""


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

    log: PartitionLogDescription
    start: int
    end: int


@dataclass(frozen=True)
class ColdSlice:
    """The offsets ``[start, end)`` of a segment."""

    partition: int
    segment: SegmentDescription
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Whether the slice is the complete segment, so that no row needs to be filtered out."""
        return self.start <= self.segment.base_offset and self.end > self.segment.last_offset


@dataclass(frozen=True)
class HotSlice:
    """The offsets ``[start, end)`` of a partition, which are fetched from the broker."""

    partition: int
    start: int
    end: int


Slice: TypeAlias = ColdSlice | HotSlice


def bounded_range(
    log: PartitionLogDescription, start: int, end: int, *, fail_on_data_loss: bool, ends_may_cross: bool = False
) -> PartitionRange:
    """The part of ``[start, end)`` that the log holds. Raises `DataLoss` if offsets are missing; with
    `fail_on_data_loss` off it only logs a warning. Raises `Invalid` if ``start > end``; with `ends_may_cross` (the ends
    were found by time) that is an empty range."""
    if start > end and not ends_may_cross:
        raise Invalid(f"{log.name}: starting offset {start} is after ending offset {end}", field="startingOffsets")
    low, high = log.log_start_offset, log.high_watermark
    if start < low or start > high or end > high:
        report_loss(log.name, start, end, low, high, fail=fail_on_data_loss)
    start = min(max(start, low), high)
    return PartitionRange(log, start, max(start, min(end, high)))


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


def slices_of(wanted: PartitionRange) -> list[Slice]:
    """The slices of the range in the order of offsets: cold below the cold end, hot from there on."""
    log = wanted.log
    cold_end = min(wanted.end, log.cold_end)
    slices: list[Slice] = [
        ColdSlice(
            log.partition, segment, max(wanted.start, segment.base_offset), min(cold_end, segment.last_offset + 1)
        )
        for segment in log.segments
        if segment.base_offset < cold_end and segment.last_offset >= wanted.start
    ]
    hot_start = max(wanted.start, log.cold_end)
    return [*slices, HotSlice(log.partition, hot_start, wanted.end)] if hot_start < wanted.end else slices


def through_broker(wanted: PartitionRange) -> list[Slice]:
    """The range as one hot slice, for a store that only the broker can reach."""
    return [HotSlice(wanted.log.partition, wanted.start, wanted.end)] if wanted.start < wanted.end else []


def offsets_per_task(slices: Sequence[Slice], tasks_min: int | None, records_max: int | None) -> int | None:
    """The most offsets that a task takes under Kafka's minPartitions and maxRecordsPerPartition; None: no limit."""
    limits = [records_max] if records_max else []
    if tasks_min:
        limits.append(max(1, sum(piece.end - piece.start for piece in slices) // tasks_min))
    return min(limits, default=None)


def dealt_to_tasks(slices: Sequence[Slice], limit: int | None) -> list[tuple[Slice, ...]]:
    """Slices in order, small ones together in a task. With a limit, large slices are cut; then several tasks open the
    same segment."""
    pieces = slices if limit is None else _cut(slices, limit)
    return _gathered(pieces, limit or OFFSETS_PER_TASK)


def _cut(slices: Iterable[Slice], offsets_max: int) -> list[Slice]:
    return [
        replace(piece, start=start, end=min(piece.end, start + offsets_max))
        for piece in slices
        for start in range(piece.start, piece.end, offsets_max)
    ]


def _gathered(slices: Iterable[Slice], offsets_max: int) -> list[tuple[Slice, ...]]:
    tasks: list[tuple[Slice, ...]] = []
    task: tuple[Slice, ...] = ()
    offsets = 0
    for piece in slices:
        if task and offsets + piece.end - piece.start > offsets_max:
            tasks.append(task)
            task, offsets = (), 0
        task, offsets = (*task, piece), offsets + piece.end - piece.start
    return [*tasks, task] if task else tasks
