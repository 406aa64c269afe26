"""What a reader knows of a partition at one moment, and what of it one read takes: values and pure decisions.

A `PartitionLog` is the broker's answer to ``/log``: segments hold ``[log_start_offset, cold_end)``, the broker the rest
up to the high watermark, with no gap and no overlap (inv. 5). A read takes the offsets ``[start, end)`` of it, as
**slices**: a `ColdSlice` is read from a segment in the bucket, a `HotSlice` fetched from the broker by offset. Because
the border between the two comes from one answer, and a hot offset can be fetched after it was archived too, each record
is read exactly once, whatever is produced and archived meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelog.storage.errors import Invalid, OutOfRange

reads_logger = logging.getLogger("tidelog.spark_connector")

OFFSETS_PER_TASK = 500_000
"""A task gathers slices up to about so many, unless the options say otherwise."""


class DataLoss(OutOfRange):
    """Records that a read asked for are not in the log; carries the range that is."""


@dataclass(frozen=True)
class ColdSegment:
    """A Parquet object of the bucket; `key` is relative to the store."""

    key: str
    base_offset: int
    last_offset: int
    records: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True)
class PartitionLog:
    """One consistent picture of a partition."""

    topic: str
    topic_id: str
    partition: int
    log_start_offset: int
    cold_end: int
    high_watermark: int
    store_url: str
    segments: tuple[ColdSegment, ...]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class PartitionRange:
    """What one read takes of a partition: the offsets ``[start, end)``."""

    log: PartitionLog
    start: int
    end: int


@dataclass(frozen=True)
class ColdSlice:
    """The offsets ``[start, end)`` of a segment."""

    partition: int
    segment: ColdSegment
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Whether that is all of the segment, so that nothing of it needs to be filtered."""
        return self.start <= self.segment.base_offset and self.end > self.segment.last_offset


@dataclass(frozen=True)
class HotSlice:
    """The offsets ``[start, end)`` of a partition, to be fetched from the broker."""

    partition: int
    start: int
    end: int


Slice: TypeAlias = ColdSlice | HotSlice


def bounded_range(
    log: PartitionLog, start: int, end: int, *, fail_on_data_loss: bool, ends_may_cross: bool = False
) -> PartitionRange:
    """``[start, end)`` if the log holds it. What it does not hold is `DataLoss`, or with `fail_on_data_loss` off a
    warning and left out. ``start > end`` is `Invalid`, or with `ends_may_cross` (found by time) nothing to read."""
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
            f"{text}; the others were deleted by retention, or never were. Ask for offsets in that range, or set "
            "failOnDataLoss=false to read what is there",
            log_start_offset=low,
            high_watermark=high,
        )
    reads_logger.warning("%s; reading what is there (failOnDataLoss=false)", text)


def slices_of(wanted: PartitionRange) -> list[Slice]:
    """The range in order of offsets: cold below the cold end, hot from it on."""
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
    """The range as one slice, all of it fetched: for a store that only the broker can reach."""
    return [HotSlice(wanted.log.partition, wanted.start, wanted.end)] if wanted.start < wanted.end else []


def offsets_per_task(slices: Sequence[Slice], tasks_min: int | None, records_max: int | None) -> int | None:
    """At most how many offsets a task takes under Kafka's minPartitions and maxRecordsPerPartition; None: no limit."""
    limits = [records_max] if records_max else []
    if tasks_min:
        limits.append(max(1, sum(piece.end - piece.start for piece in slices) // tasks_min))
    return min(limits, default=None)


def dealt_to_tasks(slices: Sequence[Slice], limit: int | None) -> list[tuple[Slice, ...]]:
    """Slices in order, small ones together. With a limit large ones are cut (each of its tasks opens the segment)."""
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
