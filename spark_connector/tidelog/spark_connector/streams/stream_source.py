"""``spark.readStream.format("tidelog")``: the reader that Spark's streaming engine calls.

    spark.readStream.format("tidelog").option("subscribe", "web").load()

Spark keeps one Python process for a stream on the driver. There `StreamPlanner` decides up to which offsets each
micro-batch reads, and cuts its tasks as a batch read does: a backlog from segments, the live end from the broker. The
tasks run in Python workers (`rows.read_task`). `stream_offsets` explains the offsets in the checkpoint.

**The first batch is empty.** Spark writes into the checkpoint where a batch ends, not where it begins, and a query that
crashed in its first batch asks the source for its first offset again. An answer that depends on the moment, such as
`latest`, would lose records. So a stream begins at ``{}``, and its first batch only writes the first offsets into the
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.spark_connector.options.stream_options import AdmissionLimits, StreamOptions
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.rows import checked_schema, read_task
from tidelog.spark_connector.streams.stream_offsets import BEGINNING, OffsetJson, parse_stream_offsets
from tidelog.spark_connector.streams.stream_planner import StreamPlanner
from tidelog.storage.runtime import SystemClock


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark pickles it for its tasks, so the connection is opened by the first call that needs it."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked_schema(schema, include_headers=options.read.include_headers)
        self._connection: BrokerConnection | None = None
        self._opened: StreamPlanner | None = None

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - the names are Spark's
        return BEGINNING.json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return _read_limit(self._options.limits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner().end_now()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Spark hands back the limit of `getDefaultReadLimit`, which stands for all limits of the options, or
        `ReadAllAvailable`, which overrides them."""
        end = self._planner().next_end(parse_stream_offsets(start), limited=not isinstance(limit, ReadAllAvailable))
        return end.json()

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """For ``latestOffset`` in the query's progress."""
        latest = self._planner().latest
        return None if latest is None else latest.json()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        tasks = self._planner().tasks(parse_stream_offsets(start), parse_stream_offsets(end))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition.value, self._schema)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _planner(self) -> StreamPlanner:
        if self._opened is None:
            self._connection = BrokerConnection(self._options.read.broker)
            self._opened = StreamPlanner(self._options, self._connection, SystemClock())
        return self._opened


def _read_limit(limits: AdmissionLimits) -> ReadLimit:
    """One limit in Spark's terms, which has no limit of several kinds."""
    if limits.offsets_max:
        return ReadMaxRows(limits.offsets_max)
    if limits.bytes_max:
        return ReadMaxBytes(limits.bytes_max)
    return ReadMinRows(limits.offsets_min) if limits.offsets_min else ReadAllAvailable()
