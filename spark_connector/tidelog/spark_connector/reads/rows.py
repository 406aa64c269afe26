"""The rows of a read: Kafka's columns in Spark's types, and how the slices of a task become Arrow batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.cold_reader import PLACE, StoreReader
from tidelog.spark_connector.reads.hot_reader import HotReader
from tidelog.spark_connector.reads.pruning import Interval
from tidelog.spark_connector.reads.slices import (
    ColdSlice,
    HotSlice,
    Slice,
    TopicRef,
    bounded_range,
    reads_logger,
    slices_of,
)
from tidelog.storage.errors import Invalid, NotFound
from tidelog.wire.topic_log import TopicLogRequest

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_STORED_COLUMNS = ("partition", "key", "value", "offset", "timestamp", "headers")


def row_schema(*, include_headers: bool) -> StructType:
    """key, value: binary; topic; partition: int; offset: long; timestamp; timestampType: int (0 CreateTime,
    1 LogAppendTime); with headers ``array<struct<key: string, value: binary>>``."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    return StructType([*fields, StructField("headers", HEADERS)] if include_headers else fields)


def checked_schema(asked: StructType, *, include_headers: bool) -> StructType:
    """`asked`, which may name some of the columns (fewer columns read faster). Raises `Invalid` for other columns or
    types."""
    known = {field.name: field.dataType for field in row_schema(include_headers=include_headers)}
    wrong = [field.simpleString() for field in asked if known.get(field.name) != field.dataType]
    if wrong:
        offer = ", ".join(f"{name}: {kind.simpleString()}" for name, kind in known.items())
        raise Invalid(f"unknown columns of the tidelog source: {', '.join(wrong)}; choose from {offer}", field="schema")
    return asked


@dataclass(frozen=True)
class ReadTask:
    """The slices of one topic that one Spark task reads, and their source. `store` None: only through the broker."""

    topic: TopicRef
    slices: tuple[Slice, ...]
    broker: str
    store: str | None
    fail_on_data_loss: bool
    timestamps_ms: Interval = field(default_factory=Interval)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark expects for `schema`."""
    return to_arrow_schema(schema, timezone="UTC")


def read_task(task: ReadTask, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The task's rows with the columns of `schema`, in the Arrow types that Spark expects."""
    with BrokerConnection(task.broker) as connection:
        reader = TaskReader(task, connection, arrow_schema(schema))
        for each in task.slices:
            yield from reader.read(each)


class TaskReader:
    """Reads the slices of a task. If a segment is gone, it asks the broker where the rest of its records are now, and
    reads them from there. It does so once for each slice: the second time, the records are lost."""

    def __init__(self, task: ReadTask, connection: BrokerConnection, schema: pa.Schema) -> None:
        self._task = task
        self._connection = connection
        self._schema = schema
        self._stored = [name for name in schema.names if name in _STORED_COLUMNS]
        topic = task.topic
        self._hot = HotReader(connection, topic.name, topic.topic_id, fail_on_data_loss=task.fail_on_data_loss)

    def read(self, wanted: Slice) -> Iterator[pa.RecordBatch]:
        if isinstance(wanted, HotSlice):
            yield from self._read_hot(wanted)
            return
        left = wanted
        try:
            for batch in self._read_cold(wanted):
                yield self._as_rows(batch, {})
                left = left.after(*(batch.column(name)[-1].as_py() for name in PLACE))
        except NotFound as gone:
            reads_logger.info("%s: the rest of its records are looked up again", gone)
            yield from self._read_again(left, gone)

    def _read_again(self, left: ColdSlice, gone: NotFound) -> Iterator[pa.RecordBatch]:
        for each in self._planned_again(left):
            if isinstance(each, HotSlice):
                yield from self._read_hot(each)
                continue
            try:
                yield from (self._as_rows(batch, {}) for batch in self._read_cold(each))
            except NotFound:
                self._report_gone(left, gone)

    def _planned_again(self, left: ColdSlice) -> list[Slice]:
        """Where the records of `left` are now. Raises `NotFound` if the topic is another one."""
        topic = self._task.topic
        pieces = {piece.span.partition: piece for piece in left.pieces}
        if not pieces:
            return []
        first, last = min(piece.start for piece in left.pieces), max(piece.end for piece in left.pieces) - 1
        request = TopicLogRequest(partitions=tuple(pieces), min_offset=first, max_offset=last)
        log = self._connection.topic_log(topic.name, request)
        if log.topic_id != topic.topic_id:
            raise NotFound(f"topic {topic.name} was deleted and created again during the read: start the query again")
        ranges = [
            bounded_range(
                topic.name,
                ends,
                pieces[ends.partition].start,
                pieces[ends.partition].end,
                fail_on_data_loss=self._task.fail_on_data_loss,
            )
            for ends in log.partitions
        ]
        return slices_of(log, ranges)

    def _report_gone(self, left: ColdSlice, gone: NotFound) -> None:
        places = ", ".join(f"{piece.span.partition}: [{piece.start}, {piece.end})" for piece in left.pieces[:10])
        message = f"{gone}: offsets of {self._task.topic.name} are gone, by partition {places}"
        if self._task.fail_on_data_loss:
            raise NotFound(f"{message}. Start the query again, or set failOnDataLoss=false") from gone
        reads_logger.warning("%s; the read continues without them (failOnDataLoss=false)", message)

    def _read_cold(self, wanted: ColdSlice) -> Iterator[pa.RecordBatch]:
        assert self._task.store is not None, "a store that only the broker reaches has no cold slices"
        batches = StoreReader(self._task.store).read(wanted, self._stored, self._task.timestamps_ms)
        return (batch for batch in batches if batch.num_rows)

    def _read_hot(self, wanted: HotSlice) -> Iterator[pa.RecordBatch]:
        columns = [name for name in self._stored if name != "partition"] or ["offset"]
        for batch in self._hot.read(wanted, columns):
            yield self._as_rows(batch, {"partition": wanted.partition})

    def _as_rows(self, batch: pa.RecordBatch, more: Mapping[str, object]) -> pa.RecordBatch:
        """`batch` with the columns of the schema; constants are those of the topic, and `more`."""
        topic = self._task.topic
        constants = {"topic": topic.name, "timestampType": topic.timestamp_type, **more}
        columns = [
            pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
            if field.name in constants
            else batch.column(field.name).cast(field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
