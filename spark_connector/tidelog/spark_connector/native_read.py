"""`read`: the rows of the data source, faster. Cold segments go through Spark's own Parquet reader, which prunes
columns, pushes filters down and stays in the JVM. A small hot tail is fetched at once, by the driver; only a large one
takes the way through Python workers.

One snapshot is taken when `read` is called, and the DataFrame keeps to it: every action on it sees the same records
(until retention deletes them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from tidelog.spark_connector.broker_connection import TopicDescription
from tidelog.spark_connector.hot_table import fetched
from tidelog.spark_connector.options import ReadOptions, parse_options
from tidelog.spark_connector.partition_log import ColdSlice, HotSlice
from tidelog.spark_connector.rows import HEADERS, row_schema
from tidelog.spark_connector.snapshot import TopicSnapshot, slices_to_read, store_of, take_snapshot
from tidelog.spark_connector.source import TidelogDataSource, register

VERIFY_CHECKSUMS = "parquet.page.verify-checksum.enabled"
"""Off in Parquet's Java reader unless asked for; segments carry the checksums."""

LISTED_AT_ONCE = 32
"""Spark looks at so many paths in the driver, and starts a job for more
(``spark.sql.sources.parallelPartitionDiscovery.threshold``): for 44 local files 0.7 s instead of 0.1. On S3, where each
takes two requests, the job is right."""
SCANS_MAX = 8

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
        rows = fetched(options, topic.topic, hot, schema)
        yield _hot_rows(spark, options, topic, hot, schema) if rows is None else spark.createDataFrame(rows, schema)


def scans(slices: Sequence[ColdSlice], store_url: str | None) -> list[Sequence[ColdSlice]]:
    """`slices` as one scan, or on a local store as a few even ones that Spark lists without a job for it. Two or three
    scans also end more evenly: Spark cuts each one by its bytes, and of three tasks on two cores one runs alone."""
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
    """The store as Hadoop names it: S3 is s3a, and a path is not percent-encoded."""
    address = urlsplit(store_url)
    if address.scheme == "s3":
        return f"s3a://{address.netloc}{address.path}".rstrip("/")
    return f"file://{unquote(address.path)}".rstrip("/")


def _literal(path: str) -> str:
    """Spark expands patterns in the paths it is to read; a folder's name may look like one."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", path)


def _within(slices: Sequence[ColdSlice]) -> Column:
    """Rows of `slices`. The outer bounds come first, alone, so that Spark can push them down to the row groups."""
    outer = F.col("offset").between(min(s.start for s in slices), max(s.end for s in slices) - 1)
    if len(slices) == 1:
        return outer
    return outer & _any_of([_of_slice(piece) for piece in slices])


def _of_slice(piece: ColdSlice) -> Column:
    return (F.col("partition") == piece.partition) & F.col("offset").between(piece.start, piece.end - 1)


def _any_of(conditions: Sequence[Column]) -> Column:
    """A balanced tree: Spark's analysis recurses, and thousands of partitions would be too deep a chain."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return _any_of(conditions[:middle]) | _any_of(conditions[middle:])


def _cold_rows(segments: DataFrame, topic: TopicDescription, schema: StructType) -> DataFrame:
    constants = {
        "topic": F.lit(topic.name),
        "timestampType": F.lit(topic.timestamp_type),
    }
    return segments.select([constants.get(name, F.col(name)).alias(name) for name in schema.names])


def _hot_rows(
    spark: SparkSession, options: ReadOptions, topic: TopicSnapshot, slices: Sequence[HotSlice], schema: StructType
) -> DataFrame:
    """Exactly `slices`, by the data source. It looks at the log anew, so what was archived since the snapshot was taken
    comes from the bucket, and the offsets stay the same."""
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
