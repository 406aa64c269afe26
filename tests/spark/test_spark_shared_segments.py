"""A topic of many partitions in shared segments: Spark, DuckDB, the client and plain readers read each record once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.serving import ARCHIVES, KEEPS_HOT, Serving, record, serving

from tidelog.client import Admin, read_table, scan
from tidelog.spark_connector import read
from tidelog.wire.topic_log import TopicLogDescription

PARTITIONS, SHARDS, ROUNDS, HOT = 20, 2, 3, 7
LOG_STARTS = {3: 41, 8: 1, 19: 150}
"""Deleted up to these offsets, which lie inside of segments that other partitions need."""


def per_round(partition: int) -> int:
    """Large and small partitions."""
    return 5 + 40 * (partition % 4)


def cold_end(partition: int) -> int:
    return ROUNDS * per_round(partition)


def expected(low: int = 0, high: int = 1 << 60) -> list[tuple[int, int]]:
    return [
        (p, offset)
        for p in range(PARTITIONS)
        for offset in range(max(low, LOG_STARTS.get(p, 0)), min(high, cold_end(p) + HOT))
    ]


def produce(broker: Serving, count_of: Callable[[int], int], start_of: Callable[[int], int]) -> None:
    for p in range(PARTITIONS):
        made = [record(p, offset) for offset in range(start_of(p), start_of(p) + count_of(p))]
        broker.produce("many", p, [replace(each, value=b"%d-%d" % (p, each.offset)) for each in made])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("broker")
    settings = {"shards": SHARDS}
    with serving(folder, f"file:{folder}/store", {**ARCHIVES, **settings, "archiver.interval.ms": 500}) as first:
        first.create_topic("many", PARTITIONS)
        for number in range(ROUNDS):
            produce(first, per_round, lambda p, number=number: number * per_round(p))  # type: ignore[misc]
            first.wait_until_archived("many")
        with Admin(first.url) as admin:
            for p, offset in LOG_STARTS.items():
                admin.delete_records("many", p, offset)
    with serving(folder, f"file:{folder}/store", {**KEEPS_HOT, **settings}) as second:
        produce(second, lambda _: HOT, cold_end)
        yield second


@pytest.fixture(scope="module")
def log(broker: Serving) -> TopicLogDescription:
    return broker.log("many")


Places = Callable[[int, int], list[tuple[int, int]]]


def places_in(frame: DataFrame) -> list[tuple[int, int]]:
    rows = frame.select("partition", "offset", "value").collect()
    assert all(row.value == b"%d-%d" % (row.partition, row.offset) for row in rows)
    return sorted((row.partition, row.offset) for row in rows)


def test_the_segments_are_shared(log: TopicLogDescription) -> None:
    assert {segment.shard for segment in log.segments} == set(range(SHARDS))
    assert max(segment.partitions for segment in log.segments) == PARTITIONS // SHARDS
    assert len(log.segments) < PARTITIONS
    assert {ends.partition: ends.log_start_offset for ends in log.partitions if ends.log_start_offset} == LOG_STARTS


@pytest.mark.spark
@pytest.mark.parametrize("way", ["data source", "native"])
def test_spark_reads_each_record_once(spark: SparkSession, broker: Serving, way: str) -> None:
    def frame(**options: str) -> DataFrame:
        if way == "native":
            return read(spark, broker=broker.url, subscribe="many", **options)
        return spark.read.format("tidelog").options(broker=broker.url, subscribe="many", **options).load()

    assert places_in(frame()) == expected()
    bounds: Mapping[int, int] = {p: max(LOG_STARTS.get(p, 0), cold_end(p) - 9) for p in range(PARTITIONS)}
    cut = frame(startingOffsets=json.dumps({"many": {str(p): offset for p, offset in bounds.items()}}))
    assert places_in(cut) == [(p, offset) for p, offset in expected() if offset >= bounds[p]]
    assert places_in(frame(maxRecordsPerPartition="100")) == expected()
    one = frame().where("partition = 3 AND offset >= 100 AND offset < 110")
    assert places_in(one) == [(3, offset) for offset in range(100, 110)]


def test_the_client_and_duckdb_read_each_record_once(broker: Serving) -> None:
    table = read_table("many", broker.url, columns=["partition", "offset", "value"])
    rows = sorted(zip(*(table[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))
    assert rows == [(p, offset, b"%d-%d" % (p, offset)) for p, offset in expected()]
    many = scan("many", broker.url)
    with duckdb.connect() as connection:
        connection.register("many", many)
        found = connection.sql('SELECT partition, "offset" FROM many ORDER BY ALL').fetchall()
        few = connection.sql('SELECT "offset" FROM many WHERE partition = 3 AND "offset" < 50 ORDER BY 1').fetchall()
    assert found == expected()
    assert few == [(offset,) for offset in range(41, 50)]


def test_plain_readers_see_the_archived_records_of_the_list(broker: Serving, log: TopicLogDescription) -> None:
    root = Path(unquote(urlsplit(log.store).path))
    files = [str(root / segment.key) for segment in log.segments]
    table = ds.dataset(files).to_table(columns=["partition", "offset"])
    found = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    archived = [(p, offset) for p, offset in expected() if offset < cold_end(p)]
    deleted = [(p, offset) for p, offset in found if offset < LOG_STARTS.get(p, 0)]
    assert sorted(set(found) - set(deleted)) == archived
    assert len(found) == len(set(found))
    with duckdb.connect() as connection:
        counted = connection.execute("SELECT count(*) FROM read_parquet(?)", [files]).fetchall()
    assert counted == [(len(found),)]
