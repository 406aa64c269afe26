"""The data source ``tidelog``: ``spark.read.format("tidelog")`` with the options of Spark's Kafka source.

    register(spark)
    spark.read.format("tidelog").option("subscribe", "web").load()

Planning runs in a Python process on the driver and takes the snapshot. Each task then reads its slices in a Python
worker and passes Arrow batches to the JVM. Spark keeps the plan of a DataFrame's first action for the later ones, so
all see the same records; ``load()`` again to see newer ones. `tidelog.spark_connector.read` is faster.

Spark does not prune columns of Python sources. To read some columns only, name them in a schema:
``spark.read.schema("offset long")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark_connector.options.read_options import ReadOptions, asks_for_headers, parse_options
from tidelog.spark_connector.options.sink_options import parse_sink_options
from tidelog.spark_connector.options.stream_options import parse_stream_options
from tidelog.spark_connector.reads.pruning import Pruning, pruning_of
from tidelog.spark_connector.reads.rows import ReadTask, checked_schema, read_task, row_schema
from tidelog.spark_connector.reads.snapshot import take_snapshot
from tidelog.spark_connector.reads.task_plan import tasks_of
from tidelog.spark_connector.sinks.sink import TidelogStreamWriter, TidelogWriter
from tidelog.spark_connector.streams.stream_source import TidelogStreamReader

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PUSHDOWN_IS_SAFE = hasattr(DataSourceReader, "pushLimit")
"""Spark 4.2 and 4.3 keep the plan of a query with pushed filters, and use it for a later query of the same DataFrame
without filters, which then lacks rows. The version that brought `pushLimit` keeps such plans apart."""


def register(spark: SparkSession) -> None:
    """Register the format ``tidelog`` in `spark`, with filter pushdown if this Spark does that right: then it switches
    on the session's setting ``spark.sql.python.filterPushdown.enabled``."""
    if PUSHDOWN_IS_SAFE:
        spark.conf.set(FILTER_PUSHDOWN, "true")
        spark.dataSource.register(PushdownTidelogDataSource)
    else:
        spark.dataSource.register(TidelogDataSource)


def create_view(spark: SparkSession, name: str, **options: str) -> DataFrame:
    """A temporary view of the records that `options` name, for SQL. All queries of it see the records that the first
    one saw; make the view again to see newer ones."""
    register(spark)
    frame = spark.read.format(TidelogDataSource.name()).options(**options).load()
    frame.createOrReplaceTempView(name)
    return frame


class TidelogDataSource(DataSource):
    """Streams, and batch reads without filter pushdown."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return row_schema(include_headers=asks_for_headers(self.options))

    def reader(self, schema: StructType) -> TidelogReader:
        return TidelogReader(parse_options(self.options), schema)

    def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802 - the name is Spark's
        return TidelogStreamReader(parse_stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TidelogWriter:
        return TidelogWriter(parse_sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidelogStreamWriter:  # noqa: N802, ARG002
        return TidelogStreamWriter(parse_sink_options(self.options), schema)


class PushdownTidelogDataSource(TidelogDataSource):
    """Batch reads that use filters on offset, timestamp, partition and topic to read less. It is a class of its own
    because Spark refuses a reader with `pushFilters` while the setting is off."""

    def reader(self, schema: StructType) -> PushdownTidelogReader:
        return PushdownTidelogReader(parse_options(self.options), schema)


class TidelogReader(DataSourceReader):
    """Plans from a snapshot and reads slices."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked_schema(schema, include_headers=options.include_headers)
        self._pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in plan_tasks(self._options, self._pruning)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to read, Spark still calls once, without a task.
        return iter(()) if partition.value is None else read_task(partition.value, self._schema)


class PushdownTidelogReader(TidelogReader):
    """Narrows its plan by the query's filters. Spark applies all of them again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - the name is Spark's
        self._pruning = pruning_of(filters)
        return filters


def plan_tasks(options: ReadOptions, pruning: Pruning) -> list[ReadTask]:
    """Take a snapshot, prune it, and distribute the remaining slices over tasks."""
    return tasks_of(options, take_snapshot(options, pruning), pruning)
