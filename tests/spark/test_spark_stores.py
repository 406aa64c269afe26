"""The same rows from every kind of store: S3 read directly in both ways, and a store in the broker's memory through the
broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.components.required import require_component
from tests.components.s3_endpoint import S3Bucket
from tests.spark.layouts import expected_records, serving_layouts
from tests.spark.serving import KEEPS_HOT, expected_row, records, rows_of, serving

from tidelog.spark_connector import read

pytestmark = pytest.mark.spark


def test_a_bucket_on_s3_is_read_directly(
    spark: SparkSession, minio_bucket: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_component("spark-s3")
    for name, value in minio_bucket.endpoint.environment().items():
        monkeypatch.setenv(name, value)
    expected = [
        expected_row("mixed", partition, each, headers=True)
        for partition, produced in expected_records("mixed").items()
        for each in produced
    ]

    with serving_layouts(tmp_path, f"{minio_bucket.url}/a prefix") as broker:
        options = {"broker": broker.url, "subscribe": "mixed", "includeHeaders": True}
        native = read(spark, **options)
        source = spark.read.format("tidelog").options(**options).load()

        assert native.inputFiles()[0].startswith("s3a://")
        assert rows_of(native) == expected
        assert rows_of(source) == expected


def test_a_store_in_memory_is_read_through_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path, "memory:", KEEPS_HOT) as broker:
        broker.create_topic("web", 1)
        broker.produce("web", 0, records(0, 0, 500))
        expected = [expected_row("web", 0, each) for each in records(0, 0, 500)]

        assert rows_of(read(spark, broker=broker.url, subscribe="web")) == expected
        assert rows_of(spark.read.format("tidelog").options(broker=broker.url, subscribe="web").load()) == expected
