"""The data source ``tidelog``: ``spark.read.format("tidelog")`` with the options of Spark's Kafka source.

    register(spark)
    spark.read.format("tidelog").option("subscribe", "web").load()

Planning runs in a Python process on the driver and takes the snapshot; each task then reads its slices in a Python
worker and hands Arrow batches to the JVM. As with Kafka's source, every action (count, show, write ...) plans anew and
so sees the log of its own moment; `tidelog.spark_connector.read` plans once and is faster.

Spark's Python sources have no column pruning. Naming a schema, ``spark.read.schema("offset long")``, reads those
columns alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark_connector.options import ReadOptions, parse_options
from tidelog.spark_connector.partition_log import Slice, dealt_to_tasks, offsets_per_task
from tidelog.spark_connector.pruning import Pruning, pruning_of
from tidelog.spark_connector.rows import ReadTask, checked_schema, read_task, row_schema
from tidelog.spark_connector.snapshot import TopicSnapshot, slices_to_read, store_of, take_snapshot

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format ``tidelog`` known to `spark`, with filters pushed down to it, which switches on the session's
    setting ``spark.sql.python.filterPushdown.enabled``. ``spark.dataSource.register(TidelogDataSource)`` leaves the
    settings as they are, and does without."""
    spark.conf.set(FILTER_PUSHDOWN, "true")
    spark.dataSource.register(PushdownTidelogDataSource)


class TidelogDataSource(DataSource):
    """Batch reads, all filters left to Spark. Wrong options fail in ``load()``."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return row_schema(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> TidelogReader:
        return TidelogReader(parse_options(self.options), schema)


class PushdownTidelogDataSource(TidelogDataSource):
    """The same, using filters on offset, timestamp, partition and topic to read less. Its own class because Spark
    refuses a reader with `pushFilters` while the setting is off."""

    def reader(self, schema: StructType) -> PushdownTidelogReader:
        return PushdownTidelogReader(parse_options(self.options), schema)


class TidelogReader(DataSourceReader):
    """Plans by a snapshot, reads by slices."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked_schema(schema, include_headers=options.include_headers)
        self._pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in plan_tasks(self._options, self._pruning)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # With nothing to read Spark calls once all the same, without a task.
        return iter(()) if partition.value is None else read_task(partition.value, self._schema)


class PushdownTidelogReader(TidelogReader):
    """Narrows its plan by the query's filters, and leaves all of them to Spark too."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - the name is Spark's
        self._pruning = pruning_of(filters)
        return filters


def plan_tasks(options: ReadOptions, pruning: Pruning) -> list[ReadTask]:
    """Take a snapshot and deal what is left of it after pruning to tasks."""
    snapshot = take_snapshot(options)
    wanted = [
        (topic, pruning.narrowed(slices_to_read(options, topic)))
        for topic in snapshot
        if pruning.takes_topic(topic.topic.name)
    ]
    every = [piece for _, slices in wanted for piece in slices]
    limit = offsets_per_task(every, options.tasks_min, options.records_per_task_max)
    return [
        _task(options, topic, slices, pruning) for topic, pieces in wanted for slices in dealt_to_tasks(pieces, limit)
    ]


def _task(options: ReadOptions, topic: TopicSnapshot, slices: tuple[Slice, ...], pruning: Pruning) -> ReadTask:
    return ReadTask(
        topic=topic.topic,
        slices=slices,
        broker=options.broker,
        store=store_of(options, topic.ranges[0].log),
        fail_on_data_loss=options.fail_on_data_loss,
        timestamps_ms=pruning.timestamps_ms,
    )
