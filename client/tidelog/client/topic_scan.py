"""Read whole topics as tables: `read_table` and `scan`.

    from tidelog.client import read_table, scan

    read_table("web", columns=["timestamp", "value"], start="@2026-11-01T00:00:00Z")   # a pyarrow Table

    web = scan("web")                                                                  # a pyarrow Dataset
    duckdb.sql("SELECT partition, count(*) FROM web GROUP BY partition")
    polars.scan_pyarrow_dataset(web).filter(polars.col("partition") == 0).collect()

A scan is a snapshot: exactly the segments that count when it is made, which are read from the store itself, and the hot
tail, which the broker gives at once. So each record is there once. A filter on partition, offset or timestamp skips the
segments that cannot match, and then row groups by their statistics.

The program needs access to the store: the files, or the AWS variables that brokers use. With a store in memory the
broker gives everything. A scan stays readable for ``delete.grace.ms`` (15 minutes); then make a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from tidelog.client.admin import Admin
from tidelog.client.broker_access import Broker
from tidelog.client.connection import DEFAULT_BROKER
from tidelog.client.consumed import TopicPartition
from tidelog.client.consumer import Consumer
from tidelog.storage.errors import Invalid, Unavailable
from tidelog.storage.records import RECORD_SCHEMA, TIMESTAMP
from tidelog.wire.topics import PartitionLogDescription, SegmentDescription

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCAN_SCHEMA = pa.schema([pa.field("partition", pa.int32()), *(field.with_nullable(True) for field in RECORD_SCHEMA)])
DEADLINE_S = 60.0
_READABLE = ("file", "s3")


@dataclass(frozen=True)
class PartitionScan:
    """Offsets ``[begin, end)`` of a partition: from `segments`, and from the broker at and after `hot_begin`."""

    log: PartitionLogDescription
    begin: int
    end: int
    segments: tuple[SegmentDescription, ...]
    hot_begin: int


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
    found = scan(topic, broker, partitions=partitions, start=start, end=end)
    return found.to_table(columns=None if columns is None else list(columns), filter=filter)


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
    with Admin(broker, deadline_s=DEADLINE_S) as admin:
        plans = [
            plan_partition(
                admin.partition_log(topic, number),
                admin.offset(topic, number, start),
                None if end == "latest" else admin.offset(topic, number, end),
            )
            for number in _numbers(admin, topic, partitions)
        ]
    parts: list[ds.Dataset] = [_hot_tail(plans, broker)]
    if any(plan.segments for plan in plans):
        parts.insert(0, _segments(plans))
    whole = ds.dataset(parts) if len(parts) > 1 else parts[0]
    edges = _edges(plans)
    return whole if edges is None else whole.filter(edges)


def plan_partition(log: PartitionLogDescription, start: int, end: int | None) -> PartitionScan:
    """Where the records of ``[start, end)`` are. If the store cannot be read directly, the broker gives all of them."""
    begin = max(start, log.log_start_offset)
    last = log.high_watermark if end is None else min(end, log.high_watermark)
    cold_end = log.cold_end if log.store.partition(":")[0] in _READABLE else begin
    segments = tuple(
        segment
        for segment in log.segments
        if segment.last_offset >= begin and segment.base_offset < min(last, cold_end)
    )
    return PartitionScan(log, begin, last, segments, max(begin, cold_end))


def _numbers(admin: Admin, topic: str, partitions: Collection[int] | None) -> Iterable[int]:
    known = [one.partition for one in admin.topic(topic).partitions]
    for number in partitions or ():
        if number not in known:
            raise Invalid(f"{topic} has no partition {number}: it has 0 to {len(known) - 1}", field="partition")
    return known if partitions is None else sorted(set(partitions))


def _segments(plans: Sequence[PartitionScan]) -> ds.Dataset:
    from tidelog.storage.stores.arrow_files import arrow_files  # pyarrow's S3 takes a while to load

    files, root = arrow_files(plans[0].log.store)
    fragments = list(_fragments(plans, files, root))
    return ds.FileSystemDataset(fragments, SCAN_SCHEMA, ds.ParquetFileFormat(), files)


def _fragments(plans: Iterable[PartitionScan], files: FileSystem, root: str) -> Iterator[ds.Fragment]:
    """The segments, each with what is known of its rows: readers skip those that cannot match a filter."""
    for plan in plans:
        for segment in plan.segments:
            known = (
                (ds.field("partition") == pa.scalar(plan.log.partition, pa.int32()))
                & (ds.field("offset") >= segment.base_offset)
                & (ds.field("offset") <= segment.last_offset)
                & (ds.field("timestamp") >= pa.scalar(segment.min_timestamp, TIMESTAMP))
                & (ds.field("timestamp") <= pa.scalar(segment.max_timestamp, TIMESTAMP))
            )
            yield ds.ParquetFileFormat().make_fragment(f"{root}/{segment.key}", files, known)


def _edges(plans: Iterable[PartitionScan]) -> ds.Expression | None:
    """The condition that leaves out rows of segments that begin before a scan or end after it."""
    edges: ds.Expression | None = None
    for plan in plans:
        if any(one.base_offset < plan.begin or one.last_offset >= plan.end for one in plan.segments):
            within = (ds.field("offset") >= plan.begin) & (ds.field("offset") < plan.end)
            here = (ds.field("partition") != pa.scalar(plan.log.partition, pa.int32())) | within
            edges = here if edges is None else edges & here
    return edges


def _hot_tail(plans: Iterable[PartitionScan], broker: Broker) -> ds.Dataset:
    wanted = {
        TopicPartition(plan.log.topic, plan.log.partition): (plan.hot_begin, plan.end)
        for plan in plans
        if plan.hot_begin < plan.end
    }
    tables = [SCAN_SCHEMA.empty_table(), *_read(wanted, broker)]
    return ds.dataset(pa.concat_tables(tables))


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
