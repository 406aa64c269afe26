"""`read`: the rows of the data source, faster.

- Spark's own Parquet reader reads the cold segments: it prunes columns, pushes filters down and stays in the JVM.
- The driver fetches a small hot tail when `read` is called. Only a large one is read by the data source: that starts
  Python twice in the driver, to plan, and once per task. In a new session this takes seconds, longer than counting a
  few million cold records, and it needs Python on the executors.

`read` takes one snapshot. Every action on the DataFrame sees the same records, until retention deletes them, or a merge
replaces their segments and the topic's ``file.delete.delay.ms`` has passed. Then the action fails, because the plan is
Spark's; `second_plan.replan_once` calls the query again.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from tidelog.spark_connector.options.read_options import ReadOptions, parse_options
from tidelog.spark_connector.queries.json_values import ValueSchema, value_schema, with_json_value
from tidelog.spark_connector.reads.rows import HEADERS, ReadTask, arrow_schema, read_task, row_schema
from tidelog.spark_connector.reads.slices import ColdSlice, HotSlice, TopicRef
from tidelog.spark_connector.reads.snapshot import TopicSnapshot, slices_to_read, store_of, take_snapshot
from tidelog.spark_connector.source import TidelogDataSource, register
from tidelog.storage.errors import Invalid

VERIFY_CHECKSUMS = "parquet.page.verify-checksum.enabled"
"""Parquet's Java reader checks the checksums of segments only with this setting."""

LISTED_AT_ONCE = 32
"""Spark lists up to this many paths in the driver and starts a job for more
(``spark.sql.sources.parallelPartitionDiscovery.threshold``). For 44 local files the job takes 0.7 s instead of 0.1. On
S3, where each path takes two requests, the job is right."""
SCANS_MAX = 8

HOT_SLICES_MAX = 32
HOT_RECORDS_MAX = 10_000
HOT_BYTES_MAX = 1 << 20
"""The driver fetches a hot tail up to these sizes. Its rows stay in the query's plan and are sent with its tasks, so
for larger ones starting Python is cheaper."""

_SEGMENT_SCHEMA = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)


def read(
    spark: SparkSession,
    *,
    value: str | None = None,
    schema: ValueSchema = None,
    **options: str | int | bool,
) -> DataFrame:
    """The records that `options` name (see `tidelog.spark_connector.options.read_options`), with Kafka's columns. With
    ``value="json"`` the values are parsed by `schema` (see `tidelog.spark_connector.queries.json_values`).

    Raises `Invalid`, `NotFound`, `DataLoss`, `Unavailable`.
    """
    wanted = parse_options({name: _option_text(option) for name, option in options.items()})
    _check_value(value, schema)
    columns = row_schema(include_headers=wanted.include_headers)
    topics = take_snapshot(wanted)
    frames = [frame for topic in topics for frame in _frames(spark, wanted, topic, columns)]
    records = reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], columns)
    return with_json_value(records, value_schema(spark, wanted, topics, schema)) if value else records


def _check_value(value: str | None, schema: ValueSchema) -> None:
    if value not in (None, "json"):
        raise Invalid(f"value is json, or is left out for the bytes, not {value!r}", field="value")
    if schema is not None and value is None:
        raise Invalid('schema describes JSON values: add value="json"', field="schema")


def _option_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _frames(spark: SparkSession, options: ReadOptions, topic: TopicSnapshot, schema: StructType) -> Iterator[DataFrame]:
    slices = slices_to_read(options, topic)
    cold = [each for each in slices if isinstance(each, ColdSlice)]
    hot = [each for each in slices if isinstance(each, HotSlice)]
    for whole in scans([each for each in cold if each.whole], store_of(options, topic.log)):
        yield _cold_rows(_segments(spark, options, topic, whole), topic.topic, schema)
    if partly := [each for each in cold if not each.whole]:
        segments = _segments(spark, options, topic, partly).where(_within(partly))
        yield _cold_rows(segments, topic.topic, schema)
    if hot:
        rows = _fetched(options, topic.topic, hot, schema)
        yield _hot_rows(spark, options, topic, hot, schema) if rows is None else spark.createDataFrame(rows, schema)


def scans(slices: Sequence[ColdSlice], store_url: str | None) -> list[Sequence[ColdSlice]]:
    """`slices` as one scan, or on a local store as a few equal scans that Spark lists without a job. Two or three scans
    also end more evenly: Spark cuts each one by its bytes, and of three tasks on two cores one runs alone."""
    count = -(-len(slices) // LISTED_AT_ONCE)
    if count > SCANS_MAX or store_url is None or urlsplit(store_url).scheme != "file":
        count = min(1, count)
    return [slices[len(slices) * n // count : len(slices) * (n + 1) // count] for n in range(count)]


def _segments(
    spark: SparkSession, options: ReadOptions, topic: TopicSnapshot, slices: Sequence[ColdSlice]
) -> DataFrame:
    store = store_of(options, topic.log)
    assert store is not None, "a store that only the broker reaches has no cold slices"
    root = _spark_root(store)
    reader = spark.read.schema(_SEGMENT_SCHEMA).option(VERIFY_CHECKSUMS, "true")
    if not options.fail_on_data_loss:
        reader = reader.option("ignoreMissingFiles", "true")
    return reader.parquet(*(f"{_literal(root)}/{piece.segment.key}" for piece in slices))


def _spark_root(store_url: str) -> str:
    """The store's URL for Hadoop: the scheme of S3 is s3a, and a path is not percent-encoded."""
    address = urlsplit(store_url)
    if address.scheme == "s3":
        return f"s3a://{address.netloc}{address.path}".rstrip("/")
    return f"file://{unquote(address.path)}".rstrip("/")


def _literal(path: str) -> str:
    """`path` with its pattern characters escaped, because Spark expands patterns in the paths it reads."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", path)


def _within(slices: Sequence[ColdSlice]) -> Column:
    """Rows of `slices`. The outer bounds are conditions of their own, which Spark can push down to the row groups."""
    ranges = offset_ranges(slices)
    bounds = [bound for found in ranges for bound in (found.start, found.end - 1)]
    numbers = [number for found in ranges for number in found.partitions]
    outer = F.col("partition").between(min(numbers), max(numbers)) & F.col("offset").between(min(bounds), max(bounds))
    return outer & _any_of([_of_range(found) for found in ranges])


@dataclass(frozen=True)
class OffsetRange:
    """The offsets ``[start, end)`` of each of these partitions."""

    partitions: tuple[int, ...]
    start: int
    end: int


def offset_ranges(slices: Sequence[ColdSlice]) -> list[OffsetRange]:
    """The rows of `slices` by partition and offset. The pieces of a partition in all slices of a read are the parts of
    one range, so they are joined; partitions with the same range share one."""
    found: dict[int, tuple[int, int]] = {}
    for piece in (piece for each in slices for piece in each.pieces):
        start, end = found.get(piece.span.partition, (piece.start, piece.end))
        found[piece.span.partition] = min(start, piece.start), max(end, piece.end)
    shared: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number, offsets in sorted(found.items()):
        shared[offsets].append(number)
    return [OffsetRange(tuple(numbers), *offsets) for offsets, numbers in shared.items()]


def _of_range(found: OffsetRange) -> Column:
    return F.col("partition").isin(*found.partitions) & F.col("offset").between(found.start, found.end - 1)


def _any_of(conditions: Sequence[Column]) -> Column:
    """A balanced tree. Spark's analysis recurses, and a chain of thousands of partitions would be too deep."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return _any_of(conditions[:middle]) | _any_of(conditions[middle:])


def _cold_rows(segments: DataFrame, topic: TopicRef, schema: StructType) -> DataFrame:
    constants = {"topic": F.lit(topic.name), "timestampType": F.lit(topic.timestamp_type)}
    return segments.select([constants.get(name, F.col(name)).alias(name) for name in schema.names])


def _fetched(options: ReadOptions, topic: TopicRef, slices: Sequence[HotSlice], schema: StructType) -> pa.Table | None:
    """The rows of `slices`, fetched now. None if there are too many, or if the options ask for tasks of a size."""
    if len(slices) > HOT_SLICES_MAX or sum(piece.end - piece.start for piece in slices) > HOT_RECORDS_MAX:
        return None
    if options.tasks_min or options.records_per_task_max:
        return None
    task = ReadTask(topic, tuple(slices), options.broker, None, options.fail_on_data_loss)
    batches: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in read_task(task, schema):
        batches.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > HOT_BYTES_MAX:
            return None
    return pa.Table.from_batches(batches, arrow_schema(schema))


def _hot_rows(
    spark: SparkSession, options: ReadOptions, topic: TopicSnapshot, slices: Sequence[HotSlice], schema: StructType
) -> DataFrame:
    """The rows of `slices` by the data source. It plans again, so it reads records from the bucket that were archived
    since the snapshot; the offsets stay the same."""
    register(spark)
    name = topic.topic.name
    source = spark.read.format(TidelogDataSource.name()).schema(schema)
    asked: dict[str, str | int | bool | None] = {
        "broker": options.broker,
        "store": options.store,
        "assign": json.dumps({name: [piece.partition for piece in slices]}),
        "startingOffsets": json.dumps({name: {piece.partition: piece.start for piece in slices}}),
        "endingOffsets": json.dumps({name: {piece.partition: piece.end for piece in slices}}),
        "includeHeaders": options.include_headers,
        "failOnDataLoss": options.fail_on_data_loss,
        "minPartitions": options.tasks_min,
        "maxRecordsPerPartition": options.records_per_task_max,
    }
    return source.options(**{option: value for option, value in asked.items() if value is not None}).load()
