"""DuckDB, pandas and plain Spark read the segments of a topic with 1,000 partitions, as they are archived and after
merging: they return the broker's rows, and a filter reads few of the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.counting_proxy import CountingProxy
from benchmarks.open_readers import Between, DuckDb, OpenReader, Pandas, PlainSpark
from pyspark.sql import SparkSession
from tests.components.required import require_component
from tests.components.s3_endpoint import S3Endpoint
from tests.spark.archived_topic import OFFSETS, ONE, TIMES, ArchivedTopic, archived_topic

from tidelog.storage.upkeep.topic_runs import FINAL_LEVEL

READ_SHARE_MAX = 0.05
FILTERS = pytest.mark.parametrize("wanted", [OFFSETS, TIMES], ids=["offset", "timestamp"])


@pytest.fixture(scope="module", params=[0, FINAL_LEVEL], ids=["archived", "merged"])
def topic(minio: S3Endpoint, request: pytest.FixtureRequest) -> ArchivedTopic:
    with pytest.MonkeyPatch.context() as patch:
        bucket = minio.make_bucket(f"open-parquet-{request.param}")
        return asyncio.run(archived_topic(bucket, request.param, patch))


@pytest.fixture
def proxy(minio: S3Endpoint) -> Iterator[CountingProxy]:
    with CountingProxy(minio.url) as running:
        yield running


@pytest.fixture(params=["duckdb", "pandas", pytest.param("spark", marks=pytest.mark.spark)])
def reader(request: pytest.FixtureRequest) -> OpenReader:
    if request.param == "spark":
        require_component("spark-s3")
        spark: SparkSession = request.getfixturevalue("spark")
        return PlainSpark(spark)
    return DuckDb() if request.param == "duckdb" else Pandas()


def same_rows(found: pa.Table, expected: pa.Table) -> None:
    assert found.num_rows == expected.num_rows > 0
    assert found.equals(expected.combine_chunks())


def test_the_broker_returns_what_was_produced(topic: ArchivedTopic) -> None:
    same_rows(topic.of_broker, topic.rows.filter(pc.field("partition") == ONE))


def test_all_rows_are_those_of_the_broker(topic: ArchivedTopic, reader: OpenReader) -> None:
    same_rows(reader.read(topic.archive, None), topic.rows)


@FILTERS
def test_a_filter_gives_the_brokers_rows_and_reads_few_of_the_bytes(
    topic: ArchivedTopic, reader: OpenReader, proxy: CountingProxy, wanted: Between
) -> None:
    through_proxy = replace(topic.archive, endpoint=proxy.url)
    found = reader.read(through_proxy, wanted)
    same_rows(found, topic.wanted(wanted))
    assert 0 < proxy.answered_bytes < READ_SHARE_MAX * topic.size_bytes


def test_the_proxy_counts_what_is_read(topic: ArchivedTopic, proxy: CountingProxy) -> None:
    Pandas().read(replace(topic.archive, endpoint=proxy.url), None)
    assert proxy.answered_bytes > topic.size_bytes
