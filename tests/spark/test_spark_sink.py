"""Writes through Spark: what was written is what is read, errors come before the job, a stream goes on after a stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.spark.serving import Serving, serving

from tidelog.spark_connector import read
from tidelog.storage.layout import STAGING_PREFIX

pytestmark = pytest.mark.spark

HEADERS = "array(struct('h' as key, cast('x' as binary) as value)) as headers"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sink")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Serving]:
    with serving(folder, f"file:{folder}/store", {}) as serving_broker:
        for name in ("web", "orders", "counted", "through"):
            serving_broker.create_topic(name, 3)
        yield serving_broker


def staged_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "store" / STAGING_PREFIX).rglob("*") if path.is_file())


def write(frame: DataFrame, broker: Serving, **options: str) -> None:
    frame.write.format("tidelog").options(broker=broker.url, **options).mode("append").save()


@pytest.mark.parametrize("store", ["the broker's", "broker"])
def test_what_was_written_is_what_is_read(spark: SparkSession, broker: Serving, folder: Path, store: str) -> None:
    topic, more = ("web", {}) if store == "the broker's" else ("through", {"store": "broker"})
    rows = spark.range(3_000, numPartitions=3).selectExpr(
        "if(id % 5 = 0, null, cast(id % 40 as string)) as key", "cast(id as string) as value", HEADERS
    )
    write(rows, broker, topic=topic, **more)
    found = read(spark, broker=broker.url, subscribe=topic, includeHeaders="true")
    expected = rows.selectExpr("cast(key as binary)", "cast(value as binary)", "headers")
    assert found.select("key", "value", "headers").exceptAll(expected).count() == 0
    assert found.count() == 3_000
    assert (
        found.where("key is not null")
        .selectExpr("key", "partition")
        .distinct()
        .groupBy("key")
        .count()
        .where("count > 1")
        .isEmpty()
    ), "a key has one partition"
    assert staged_files(folder) == []


def test_rows_name_their_topic_and_partition(spark: SparkSession, broker: Serving) -> None:
    rows = spark.range(100).selectExpr(
        "cast(id as string) as value", "if(id < 50, 'orders', 'counted') as topic", "cast(id % 3 as int) as partition"
    )
    write(rows, broker)
    found = read(spark, broker=broker.url, subscribe="orders,counted")
    expected = rows.selectExpr("cast(value as binary)", "topic", "partition")
    assert found.select("value", "topic", "partition").exceptAll(expected).isEmpty()
    assert found.count() == 100


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {"topic": "web"}, "'value' not found"),
        ("id as value", {"topic": "web"}, "value attribute type must be STRING or BINARY"),
        ("cast(id as string) as value", {}, "set the option 'topic'"),
        ("cast(id as string) as value", {"topic": "none"}, "tidelog topic create none"),
        ("cast(id as string) as value", {"topik": "web"}, "unknown option"),
    ],
)
def test_wrong_writes_fail_before_the_job(
    spark: SparkSession, broker: Serving, columns: str, options: dict[str, str], message: str
) -> None:
    jobs = spark.sparkContext.statusTracker()
    before = len(jobs.getJobIdsForGroup(None))
    with pytest.raises(PySparkException, match=message):
        write(spark.range(3).selectExpr(columns), broker, **options)
    assert len(jobs.getJobIdsForGroup(None)) == before


def test_a_null_topic_writes_nothing(spark: SparkSession, broker: Serving) -> None:
    before = read(spark, broker=broker.url, subscribe="web").count()
    rows = spark.range(10).selectExpr("cast(id as string) as value", "if(id = 7, null, 'web') as topic")
    with pytest.raises(PySparkException, match="null topic present in the data"):
        write(rows, broker)
    assert read(spark, broker=broker.url, subscribe="web").count() == before


def test_a_stream_writes_each_batch_once_over_restarts(
    spark: SparkSession, broker: Serving, folder: Path, tmp_path: Path
) -> None:
    broker.create_topic("numbers", 3)

    def run(batches: int) -> None:
        query = started(spark, broker, tmp_path)
        try:
            while query.lastProgress is None or query.lastProgress["batchId"] < batches:
                assert not query.awaitTermination(0.1)  # type: ignore[arg-type]
        finally:
            query.stop()

    for batches in (2, 4):
        run(batches)
    found = read(spark, broker=broker.url, subscribe="numbers").selectExpr("cast(cast(value as string) as long) as n")
    numbers = sorted(row.n for row in found.collect())
    committed = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdecimal())
    assert numbers[: 100 * (committed + 1)] == list(range(100 * (committed + 1)))
    assert len(numbers) == len(set(numbers))
    assert {"committed", "published"} <= set(staged_files(folder))


def started(spark: SparkSession, broker: Serving, checkpoint: Path) -> StreamingQuery:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    rows = numbers.selectExpr("cast(value as string) as value")
    options = {"broker": broker.url, "topic": "numbers", "checkpointLocation": str(checkpoint)}
    return rows.writeStream.format("tidelog").options(**options).start()
