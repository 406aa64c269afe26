"""The writers of the format ``tidelog``: for ``df.write`` and for ``df.writeStream``.

Both stage the rows in their tasks, and the driver publishes what was staged (`sink_commit`). A task that fails, is
repeated or runs twice leaves garbage, because only the attempts whose messages reach the driver are published.

A stream appends each row exactly once. Its name is the id in its checkpoint, which is the same after each restart. A
batch write has a new name each time: if its driver ends within the publishing, a part of the rows is in the log, and a
repeated write appends all of them again, as with Kafka's sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.spark_connector.options.sink_options import SinkOptions
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.sinks.committed_batch import StagedPart
from tidelog.spark_connector.sinks.part_publishing import ATTEMPTS
from tidelog.spark_connector.sinks.sink_columns import check_columns
from tidelog.spark_connector.sinks.sink_commit import SinkCommit, publish_once
from tidelog.spark_connector.sinks.sink_partitions import KnownTopics
from tidelog.spark_connector.sinks.staged_rows import StagedRows
from tidelog.spark_connector.sinks.staging_area import StagingArea, staging_of
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""Spark sets these in the tasks of a stream."""


@dataclass(frozen=True)
class StagedTask(WriterCommitMessage):
    """What the attempt of a task staged that Spark chose."""

    sink: str
    parts: tuple[StagedPart, ...]


class TidelogWriter(DataSourceArrowWriter):
    """``df.write``: appends the rows once all tasks have ended. Making one raises what can be known before the job:
    `Invalid`, `NotFound`, `Unavailable`."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise Invalid('a topic cannot be overwritten: write with mode("append")', field="mode")
        check_columns(schema, options.topic)
        if options.topic is not None:
            with BrokerConnection(options.broker) as connection:
                KnownTopics(connection).rules(options.topic)
        self._options = options
        self._sink = f"write-{Runtime().entropy.new_id()}"

    def write(self, iterator: Iterator[Any]) -> StagedTask:
        return staged(self._options, self._sink, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with connected(self._options) as connection:
            area = StagingArea(self._sink, connection)
            publish_once(lambda: connected(self._options), area, Runtime(), parts_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is deleted: if the commit failed, a part of the rows may be in the log. The sweep takes the rest."""


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: appends each batch exactly once. Spark makes one for each batch, on the driver and for the
    commit, so making one asks no broker."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> StagedTask:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        sink = self._options.query_id or context.getLocalProperty(_QUERY_ID)
        batch = context.getLocalProperty(_BATCH_ID)
        if sink is None or batch is None:
            raise Invalid(
                "this Spark does not tell a task its query and batch: set the option queryId", field="queryId"
            )
        return staged(self._options, sink, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        sink = next((message.sink for message in messages if isinstance(message, StagedTask)), None)
        if sink is None:
            return
        with connected(self._options) as connection:
            area, first_batch = StagingArea(sink, connection), self._options.first_batch
            commit = SinkCommit(lambda: connected(self._options), area, Runtime(), first_batch)
            commit.commit(batchId, parts_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is deleted: the batch may be committed. What is not is deleted with the next batch, or swept."""


def connected(options: SinkOptions) -> BrokerConnection:
    """A connection to the broker that waits for it for a minute."""
    return BrokerConnection(options.broker, ATTEMPTS)


def staged(options: SinkOptions, sink: str, batch: int, batches: Iterator[pa.RecordBatch]) -> StagedTask:
    """Stage the rows of this task."""
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    with connected(options) as connection:
        staging = staging_of(StagingArea(sink, connection), options.store, connection)
        rows = StagedRows(staging, batch, task, KnownTopics(connection), Runtime().entropy, options.topic)
        for each in batches:
            rows.add(each)
        return StagedTask(sink, rows.finish())


def parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    """The parts of all tasks, in the order of the tasks."""
    return [part for message in messages if isinstance(message, StagedTask) for part in message.parts]
