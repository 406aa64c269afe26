"""`read`: the rows of the data source, faster.

- Spark's own Parquet reader reads the cold segments: it prunes columns, pushes filters down and stays in the JVM.
- The driver fetches a small hot tail when `read` is called. Only a large one is read by the data source: that starts
  Python twice in the driver, to plan, and once per task. In a new session this takes seconds, longer than counting a
  few million cold records, and it needs Python on the executors.

`read` takes one snapshot. Every action on the DataFrame sees the same records, until retention deletes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from tidelog.spark_connector.options import ReadOptions, parse_options
from tidelog.spark_connector.rows import HEADERS, ReadTask, arrow_schema, read_task, row_schema
from tidelog.spark_connector.slices import ColdSlice, HotSlice, TopicRef
from tidelog.spark_connector.snapshot import TopicSnapshot, slices_to_read, store_of, take_snapshot
from tidelog.spark_connector.source import TidelogDataSource, register

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
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
        StructField("partition", IntegerType()),  # not in the file: from the folder's name, partition=<p>
    ]
)


def read(spark: SparkSession, **options: str | int | bool) -> DataFrame:
    """The records that `options` name (see `tidelog.spark_connector.options`), with Kafka's columns.

    Raises `Invalid`, `NotFound`, `DataLoss`, `Unavailable`.
    """
    wanted = parse_options({name: _option_text(value) for name, value in options.items()})
    schema = row_schema(include_headers=wanted.include_headers)
    frames = [frame for topic in take_snapshot(wanted) for frame in _frames(spark, wanted, topic, schema)]
    return reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], schema)


def _option_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _frames(spark: SparkSession, options: ReadOptions, topic: TopicSnapshot, schema: StructType) -> Iterator[DataFrame]:
    slices = slices_to_read(options, topic)
    cold = [piece for piece in slices if isinstance(piece, ColdSlice)]
    hot = [piece for piece in slices if isinstance(piece, HotSlice)]
    for whole in scans([piece for piece in cold if piece.whole], store_of(options, topic.ranges[0].log)):
        yield _cold_rows(_segments(spark, options, topic, whole), topic.topic, schema)
    if borders := [piece for piece in cold if not piece.whole]:
        segments = _segments(spark, options, topic, borders).where(_within(borders))
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
    store = store_of(options, topic.ranges[0].log)
    assert store is not None, "a store that only the broker reaches has no cold slices"
    root = _spark_root(store)
    # Spark takes the column `partition` from the path below basePath, and skips files by it.
    base = f"{root}/{slices[0].segment.key.split('/partition=')[0]}"
    reader = spark.read.schema(_SEGMENT_SCHEMA).options(**{"basePath": base, VERIFY_CHECKSUMS: "true"})
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
    """Rows of `slices`. The outer bounds are a condition of their own, which Spark can push down to the row groups."""
    outer = F.col("offset").between(min(s.start for s in slices), max(s.end for s in slices) - 1)
    if len(slices) == 1:
        return outer
    return outer & _any_of([_of_slice(piece) for piece in slices])


def _of_slice(piece: ColdSlice) -> Column:
    return (F.col("partition") == piece.partition) & F.col("offset").between(piece.start, piece.end - 1)


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
