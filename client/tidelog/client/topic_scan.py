"""Read whole topics as tables: `read_table` and `scan`.

    from tidelog.client import read_table, scan

    read_table("web", columns=["timestamp", "value"], start="@2026-11-01T00:00:00Z")   # a pyarrow Table

    web = scan("web")                                                                  # a pyarrow Dataset
    duckdb.sql("SELECT partition, count(*) FROM web GROUP BY partition")
    polars.scan_pyarrow_dataset(web).filter(polars.col("partition") == 0).collect()

A scan is a snapshot: exactly the segments that count when it is made, which are read from the store itself, and the hot
tail, which the broker gives at once. Segments hold records of many partitions, so a condition on partition and offset
leaves out rows that do not belong to the scan. So each record is there once. A filter on partition, offset or timestamp
skips the segments that cannot match, and then row groups by their statistics.

The program needs access to the store: the files, or the AWS variables that brokers use. With a store in memory the
broker gives everything. A scan stays readable for the topic's ``file.delete.delay.ms`` (24 hours); then make a new one.
`read_table` does so itself, once, if a segment is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidelog.client.admin import Admin, checked_position
from tidelog.client.broker_access import Broker
from tidelog.client.connection import DEFAULT_BROKER
from tidelog.client.consumed import TopicPartition
from tidelog.client.consumer import Consumer
from tidelog.storage.errors import Unavailable
from tidelog.storage.records import RECORD_SCHEMA, TIMESTAMP
from tidelog.wire.topic_log import (
    PartitionLogDescription,
    SegmentDescription,
    SpanDescription,
    TopicLogDescription,
    TopicLogRequest,
)

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCAN_SCHEMA = pa.schema([pa.field("partition", pa.int32()), *(field.with_nullable(True) for field in RECORD_SCHEMA)])
DEADLINE_S = 60.0
_READABLE = ("file", "s3")

Range = tuple[int, int]
"""Offsets from the first to before the second."""


@dataclass(frozen=True)
class TopicScan:
    """The offsets of each partition in `ranges`: from `segments`, and in `hot` from the broker. `exact`: the segments
    hold nothing else."""

    log: TopicLogDescription
    ranges: Mapping[int, Range]
    segments: tuple[SegmentDescription, ...]
    hot: Mapping[int, Range]
    exact: bool


def read_table(
    topic: str,
    broker: Broker = DEFAULT_BROKER,
    *,
    columns: Sequence[str] | None = None,
    partitions: Collection[int] | None = None,
    start: str | int = "earliest",
    end: str | int = "latest",
    filter: ds.Expression | None = None,  # noqa: A002  # as pyarrow names it
) -> pa.Table:
    """The records of `topic` as a table with `columns` (None: partition, offset, timestamp, key, value, headers).
    Arguments as of `scan`; `filter` is an expression on the columns. Within a partition, offsets ascend."""
    names = None if columns is None else list(columns)
    try:
        return scan(topic, broker, partitions=partitions, start=start, end=end).to_table(columns=names, filter=filter)
    except FileNotFoundError:  # a segment was merged or expired, and its grace was over
        return scan(topic, broker, partitions=partitions, start=start, end=end).to_table(columns=names, filter=filter)


def scan(
    topic: str,
    broker: Broker = DEFAULT_BROKER,
    *,
    partitions: Collection[int] | None = None,
    start: str | int = "earliest",
    end: str | int = "latest",
) -> ds.Dataset:
    """A snapshot of `topic` as a pyarrow dataset with `SCAN_SCHEMA`, from position `start` of each partition up to, and
    without, position `end` (see `checked_position`). `partitions`: only these. Raises `NotFound`, `Invalid`,
    `Unavailable`; reading the dataset raises pyarrow's own errors."""
    if partitions is not None and not partitions:
        return ds.dataset(SCAN_SCHEMA.empty_table())
    first, last = checked_position(start), checked_position(end)
    with Admin(broker, deadline_s=DEADLINE_S) as admin:
        asked = None if partitions is None else tuple(sorted(set(partitions)))
        log = admin.topic_log(topic, TopicLogRequest(partitions=asked))
        # A time is resolved after the log was read, so its offset can only lie beyond the log's end, and is cut to it.
        begins, lasts = (_offsets(admin, log, position) for position in (first, last))
        ranges = {number: (begins[number], lasts[number]) for number in begins}
    plan = plan_scan(log, ranges)
    wanted = {TopicPartition(topic, number): found for number, found in plan.hot.items()}
    return dataset_of(plan, pa.concat_tables([SCAN_SCHEMA.empty_table(), *_read(wanted, broker)]))


def plan_scan(log: TopicLogDescription, wanted: Mapping[int, Range]) -> TopicScan:
    """Where the records of `wanted` are, cut to what the log holds. If the store cannot be read directly, the broker
    gives all of them."""
    direct = log.store.partition(":")[0] in _READABLE
    ranges: dict[int, Range] = {}
    hot: dict[int, Range] = {}
    for ends in log.partitions:
        start, end = wanted[ends.partition]
        begin, last = max(start, ends.log_start_offset), min(end, ends.high_watermark)
        ranges[ends.partition] = begin, max(begin, last)
        hot_begin = max(begin, ends.cold_end) if direct else begin
        if hot_begin < last:
            hot[ends.partition] = hot_begin, last
    segments = tuple(each for each in log.segments if direct and any(_meets(span, ranges) for span in each.spans))
    return TopicScan(log, ranges, segments, hot, all(_all_within(segment, ranges) for segment in segments))


def dataset_of(plan: TopicScan, hot: pa.Table) -> ds.Dataset:
    """The scan as a dataset over its segments and the records `hot` (`SCAN_SCHEMA`)."""
    if not plan.segments:
        return ds.dataset(hot)
    whole = ds.dataset([_segments(plan), ds.dataset(hot)])
    return whole if plan.exact else whole.filter(_within(plan.ranges))


def _offsets(admin: Admin, log: TopicLogDescription, position: str) -> Mapping[int, int]:
    """The offset of a checked position in each partition of `log`."""
    if position.startswith("@") and log.partitions:
        return admin.offsets(log.topic, position, [ends.partition for ends in log.partitions])
    return {ends.partition: _offset(ends, position) for ends in log.partitions}


def _offset(ends: PartitionLogDescription, position: str) -> int:
    """The offset of a position that is no time."""
    if position.startswith("-"):
        return ends.high_watermark + int(position)
    named = {"earliest": ends.log_start_offset, "latest": ends.high_watermark}
    return named[position] if position in named else int(position)


def _meets(span: SpanDescription, ranges: Mapping[int, Range]) -> bool:
    begin, end = ranges[span.partition]
    return span.base_offset < end and span.last_offset >= begin


def _all_within(segment: SegmentDescription, ranges: Mapping[int, Range]) -> bool:
    """Whether every row of the segment belongs to the scan."""
    return _is_complete(segment) and all(
        ranges[span.partition][0] <= span.base_offset and span.last_offset < ranges[span.partition][1]
        for span in segment.spans
    )


def _is_complete(segment: SegmentDescription) -> bool:
    """Whether the answer has all spans of the segment."""
    return segment.partitions == len(segment.spans)


def _segments(plan: TopicScan) -> ds.Dataset:
    from tidelog.storage.stores.arrow_files import arrow_files  # pyarrow's S3 takes a while to load

    files, root = arrow_files(plan.log.store)
    fragments = list(_fragments(plan.segments, files, root))
    return ds.FileSystemDataset(fragments, SCAN_SCHEMA, ds.ParquetFileFormat(), files)


def _fragments(segments: Iterable[SegmentDescription], files: FileSystem, root: str) -> Iterator[ds.Fragment]:
    """The segments, each with what is known of all its rows: readers skip those that cannot match a filter."""
    for segment in segments:
        known = (ds.field("timestamp") >= pa.scalar(segment.min_timestamp, TIMESTAMP)) & (
            ds.field("timestamp") <= pa.scalar(segment.max_timestamp, TIMESTAMP)
        )
        if _is_complete(segment):
            known = known & _bounds(segment.spans)
        yield ds.ParquetFileFormat().make_fragment(f"{root}/{segment.key}", files, known)


def _bounds(spans: Sequence[SpanDescription]) -> ds.Expression:
    first, last = (pa.scalar(spans[at].partition, pa.int32()) for at in (0, -1))
    partition = ds.field("partition")
    return (
        (partition == first if first == last else (partition >= first) & (partition <= last))
        & (ds.field("offset") >= min(span.base_offset for span in spans))
        & (ds.field("offset") <= max(span.last_offset for span in spans))
    )


def _within(ranges: Mapping[int, Range]) -> ds.Expression:
    """The rows whose offset is in the range of their partition. The outer bounds are conditions of their own, by which
    readers skip row groups."""
    partition, offset = ds.field("partition"), ds.field("offset")
    begins, ends = ({number: found[side] for number, found in ranges.items()} for side in (0, 1))
    return (
        partition.isin(pa.array(sorted(ranges), pa.int32()))
        & (offset >= min(begins.values()))
        & (offset < max(ends.values()))
        & (offset >= _by_partition(begins))
        & (offset < _by_partition(ends))
    )


def _by_partition(numbers: Mapping[int, int]) -> ds.Expression:
    """The number of a row's partition, looked up. A chain of comparisons would cost every row one per partition."""
    values = sorted(set(numbers.values()))
    if len(values) == 1:
        return pc.scalar(values[0])
    last = max(numbers)
    place = pc.if_else(ds.field("partition") <= last, ds.field("partition"), last).cast(pa.int64())
    found: ds.Expression = pc.choose(place, *(pc.scalar(numbers.get(number, 0)) for number in range(last + 1)))
    return found


def _read(wanted: Mapping[TopicPartition, tuple[int, int]], broker: Broker) -> Iterator[pa.Table]:
    """The records of these offsets, from the broker."""
    left = {partition: end for partition, (_, end) in wanted.items()}
    if not left:
        return
    with Consumer(broker) as consumer:
        consumer.assign({partition: begin for partition, (begin, _) in wanted.items()})
        while left:
            batch = consumer.poll(DEADLINE_S)
            if batch is None and not _passed(consumer, left):
                raise Unavailable(
                    f"the broker gave no records within {DEADLINE_S:g} s: {len(left)} partitions are left"
                )
            if batch is not None:
                cut = batch.before(wanted[batch.topic_partition][1])
                number = pa.array([batch.partition] * cut.records.num_rows, pa.int32())
                yield pa.table([number, *cut.records.columns], schema=SCAN_SCHEMA)
            _passed(consumer, left)


def _passed(consumer: Consumer, left: dict[TopicPartition, int]) -> bool:
    """Remove the partitions that were read to their ends. A loss or a compaction can move a position by itself."""
    done = [partition for partition, end in left.items() if consumer.position(partition) >= end]
    for partition in done:
        del left[partition]
        consumer.pause([partition])
    return bool(done)
