"""Rows of a write: columns and options are checked before the job, rows before they are committed; partitions are
Kafka's."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)
from tests.spark.sink_world import SinkWorld, commit

from tidelog.spark_connector.options.sink_options import SinkOptions, parse_sink_options
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.sinks import staged_rows
from tidelog.spark_connector.sinks.committed_batch import StagedPart
from tidelog.spark_connector.sinks.sink_columns import check_columns
from tidelog.spark_connector.sinks.sink_partitions import KnownTopics
from tidelog.spark_connector.sinks.staged_rows import StagedRows
from tidelog.spark_connector.sinks.staging_area import StagingArea
from tidelog.storage.errors import Invalid, NotFound
from tidelog.storage.partitioner import partitions_of
from tidelog.storage.runtime import Runtime


class KeptObjects:
    """Staging in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def stage(self, _batch: int, name: str, data: memoryview) -> None:
        self.objects[name] = bytes(data)


@pytest.fixture(scope="module")
def world() -> Iterator[SinkWorld]:
    with SinkWorld() as running:
        for name in ("web", "orders"):
            running.create_topic(name, 4)
        running.create_topic("newest", 2, **{"cleanup.policy": "compact"})
        yield running


def staged(world: SinkWorld, *batches: pa.RecordBatch, topic: str | None = "web", task: int = 0) -> list[Any]:
    """The parts of the rows, each with its records."""
    kept = KeptObjects()
    with BrokerConnection(world.url) as connection:
        rows = StagedRows(kept, 0, task, KnownTopics(connection), Runtime().entropy, topic)
        for batch in batches:
            rows.add(batch)
        return [(part, _records(kept, part)) for part in rows.finish()]


def _records(kept: KeptObjects, part: StagedPart) -> pa.Table:
    data = kept.objects[part.name][part.start : part.start + part.length]
    assert zlib.crc32(data) == part.checksum
    table = pa.ipc.open_stream(data).read_all()
    assert table.num_rows == part.records
    return table


def with_nulls(name: str, column: list[object], kind: Any) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(["a"] * len(column)), name: pa.array(column, kind)})


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


STRING, BINARY, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def headers_of(value: DataType) -> ArrayType:
    return ArrayType(StructType([StructField("key", STRING, nullable=False), StructField("value", value)]))


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        (schema(key=STRING), "web", "'value' not found"),
        (schema(value=STRING), None, "set the option 'topic'"),
        (schema(value=INT), "web", "value attribute type must be STRING or BINARY, not int"),
        (schema(value=STRING, key=LONG), "web", "key attribute type must be"),
        (schema(value=STRING, partition=LONG), "web", "partition attribute type must be INT"),
        (schema(value=STRING, topic=BINARY), None, "topic attribute type must be STRING"),
        (schema(value=STRING, headers=ArrayType(STRING)), "web", "headers attribute type must be ARRAY"),
        (schema(value=STRING, headers=headers_of(STRING)), "web", "headers attribute type must be"),
    ],
)
def test_wrong_columns_fail_before_the_job(columns: StructType, topic: str | None, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        check_columns(columns, topic)


def test_the_columns_of_kafkas_sink_and_others_are_taken() -> None:
    check_columns(schema(key=BINARY, value=STRING, topic=STRING, partition=INT, headers=headers_of(BINARY)), None)
    check_columns(schema(value=BINARY, offset=LONG, timestamp=LONG), "web")


def test_options() -> None:
    given = {"TOPIC": "web", "checkpointlocation": "/x", "kafka.acks": "all", "queryid": "orders-7", "firstBatch": "3"}
    expected = SinkOptions("web", "http://127.0.0.1:8080", query_id="orders-7", first_batch=3)
    assert parse_sink_options(given) == expected
    for wrong in ({"topik": "web"}, {"topic": ""}, {"queryId": "a/b"}, {"firstBatch": "-1"}):
        with pytest.raises(Invalid):
            parse_sink_options(wrong)
    with pytest.raises(Invalid, match="goes into 'broker'"):
        parse_sink_options({"kafka.bootstrap.servers": "localhost:9092", "topic": "web"})


def test_rows_are_sorted_by_the_partition_of_their_key_and_keep_their_order(world: SinkWorld) -> None:
    keys = [f"user-{number % 9}" for number in range(200)]
    values = [str(number) for number in range(200)]
    halves = [batch(key=keys[:77], value=values[:77]), batch(key=keys[77:], value=values[77:])]
    chosen = partitions_of(pa.chunked_array([pa.array(keys, pa.binary())]), 4)
    parts = staged(world, *halves)
    assert [part.partition for part, _ in parts] == sorted(set(chosen.tolist()))
    for part, records in parts:
        assert records["value"].to_pylist() == [
            value.encode() for value, partition in zip(values, chosen, strict=True) if partition == part.partition
        ]


def test_a_partition_column_counts_more_than_the_key_and_null_leaves_it_to_the_key(world: SinkWorld) -> None:
    rows = pa.record_batch(
        {
            "key": pa.array(["k", "k", None]),
            "value": pa.array(["a", "b", "c"]),
            "partition": pa.array([3, None, 2], pa.int32()),
        }
    )
    of_key = partitions_of(pa.chunked_array([pa.array(["k"], pa.binary())]), 4).tolist()[0]
    found = {value: part.partition for part, records in staged(world, rows) for value in records["value"].to_pylist()}
    assert found == {b"a": 3, b"b": of_key, b"c": 2}


def test_rows_without_keys_take_one_partition_per_batch_and_another_one_next(world: SinkWorld) -> None:
    parts = staged(world, *(batch(value=["a", "b"]) for _ in range(4)), task=2)
    assert [(part.partition, part.records) for part, _ in parts] == [(0, 2), (1, 2), (2, 2), (3, 2)]


def test_each_row_goes_to_the_topic_that_it_names_unless_the_option_does(world: SinkWorld) -> None:
    rows = batch(value=["a", "b", "c"], topic=["web", "orders", "web"])
    by_column = {part.topic: records["value"].to_pylist() for part, records in staged(world, rows, topic=None)}
    assert by_column == {"web": [b"a", b"c"], "orders": [b"b"]}
    assert {part.topic for part, _ in staged(world, rows, topic="orders")} == {"orders"}


@pytest.mark.parametrize(
    ("rows", "topic", "error", "message"),
    [
        (batch(value=["a"], topic=pa.array([None], pa.string()).to_pylist()), "none", NotFound, "tidelog topic create"),
        (
            pa.record_batch({"value": pa.array(["a"]), "topic": pa.array([None], pa.string())}),
            None,
            Invalid,
            "null topic",
        ),
        (
            pa.record_batch({"value": pa.array(["a"]), "partition": pa.array([4], pa.int32())}),
            "web",
            Invalid,
            "no partition 4",
        ),
        (
            pa.record_batch({"value": pa.array(["a"]), "partition": pa.array([-1], pa.int32())}),
            "web",
            Invalid,
            "no partition -1",
        ),
        (batch(value=["a"]), "newest", Invalid, "compacted"),
        (batch(value=["x" * (1 << 21)]), "web", Invalid, "at most"),
        (batch(value=["a"], key=["x" * (1 << 17)]), "web", Invalid, "the key of a row"),
        (batch(value=["a"], headers=[[{"key": None, "value": b"x"}]]), "web", Invalid, "each header needs a key"),
    ],
)
def test_rows_that_no_broker_would_take_stop_their_task(
    world: SinkWorld, rows: pa.RecordBatch, topic: str | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        staged(world, rows, topic=topic)


def test_large_tasks_are_cut_into_objects_and_ranges(world: SinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_rows, "OBJECT_BYTES", 30_000)
    monkeypatch.setattr(staged_rows, "RANGE_BYTES", 2_000)
    keys = [f"user-{number}" for number in range(400)]
    parts = staged(world, *(batch(key=keys, value=["v" * 50] * 400) for _ in range(3)))
    assert len({part.name for part, _ in parts}) > 1
    assert all(part.length < 4_000 for part, _ in parts)
    assert sum(part.records for part, _ in parts) == 1_200


def test_what_is_staged_is_what_is_read_with_nulls_and_headers(world: SinkWorld) -> None:
    headers = [[{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}], [], None]
    rows = batch(key=[None, "", "k"], value=[None, "", "v"], headers=headers)
    more = batch(value=["w"])
    kept: list[StagedPart] = []
    with BrokerConnection(world.url) as connection:
        world.create_topic("whole", 1)
        area = StagingArea("whole", connection)
        staging = StagedRows(area, 0, 0, KnownTopics(connection), Runtime().entropy, "whole")
        staging.add(rows)
        staging.add(more)
        kept += staging.finish()
    commit(world, "whole", 0, kept)
    found = world.http.get("/v1/topics/whole/partitions/0/records").json()["records"]
    assert [(each["key"], each["value"]) for each in found] == [(None, None), ("", ""), ("k", "v"), (None, "w")]
    written = [{"key": "h", "value": "\x00"}, {"key": "h", "value": None}]
    assert [each["headers"] for each in found] == [written, [], [], []]
