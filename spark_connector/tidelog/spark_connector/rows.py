"""The rows of a read: Kafka's columns in Spark's types, and how the slices of a task become Arrow batches of them."""

from __future__ import annotations

from collections.abc import Iterator
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

from tidelog.spark_connector.broker_connection import BrokerConnection
from tidelog.spark_connector.cold_reader import StoreReader
from tidelog.spark_connector.hot_reader import HotReader
from tidelog.spark_connector.pruning import Interval
from tidelog.spark_connector.slices import ColdSlice, Slice, TopicRef, reads_logger
from tidelog.storage.errors import Invalid, NotFound

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_STORED_COLUMNS = ("key", "value", "offset", "timestamp", "headers")


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
    columns = arrow_schema(schema)
    stored = [name for name in columns.names if name in _STORED_COLUMNS] or ["offset"]
    with BrokerConnection(task.broker) as connection:
        hot = HotReader(connection, task.topic.name, task.topic.topic_id, fail_on_data_loss=task.fail_on_data_loss)
        for piece in task.slices:
            batches = _cold(task, piece, stored) if isinstance(piece, ColdSlice) else hot.read(piece, stored)
            for batch in batches:
                yield _as_rows(batch, task.topic, piece.partition, columns)


def _cold(task: ReadTask, piece: ColdSlice, columns: list[str]) -> Iterator[pa.RecordBatch]:
    assert task.store is not None, "a store that only the broker reaches has no cold slices"
    try:
        yield from StoreReader(task.store).read(piece, columns, task.timestamps_ms)
    except NotFound as error:
        message = f"{error}: offsets [{piece.start}, {piece.end}) of {task.topic.name}-{piece.partition} are gone"
        if task.fail_on_data_loss:
            raise NotFound(f"{message}. Start the query again, or set failOnDataLoss=false") from error
        reads_logger.warning("%s; the read continues without them (failOnDataLoss=false)", message)


def _as_rows(batch: pa.RecordBatch, topic: TopicRef, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    constants = {"topic": topic.name, "partition": partition, "timestampType": topic.timestamp_type}
    columns = [
        pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        if field.name in constants
        else batch.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
