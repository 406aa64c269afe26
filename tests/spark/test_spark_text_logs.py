"""Logs with one record per line: Spark returns the lines byte for byte in both ways, and the same counts as HTTP.
``TIDELOG_REAL_LOGS`` adds the ``*.gz`` files of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.end_to_end.test_round_trip import AWKWARD, real_logs
from tests.spark.serving import ARCHIVES, KEEPS_HOT, Serving, serving

from tidelog.spark_connector import read

pytestmark = pytest.mark.spark

LOGS = {name: data for name, data in AWKWARD.items() if len(data.splitlines()) < 10_000}
"""Without the longest, which takes Spark's collect seconds and tests nothing more."""


@pytest.mark.parametrize("settings", [ARCHIVES, KEEPS_HOT], ids=["cold", "hot"])
def test_lines_come_back_byte_for_byte_and_counts_agree(
    spark: SparkSession, tmp_path: Path, settings: dict[str, int]
) -> None:
    with serving(tmp_path, f"file:{tmp_path}/store", settings) as broker:
        for number, (name, data) in enumerate({**LOGS, **real_logs()}.items()):
            topic = f"log-{number}"
            _produce(broker, topic, data)
            if settings is ARCHIVES:
                broker.wait_until_archived(topic)
            native = read(spark, broker=broker.url, subscribe=topic)
            source = spark.read.format("tidelog").options(broker=broker.url, subscribe=topic).load()

            assert _lines(native) == data, name
            assert _lines(source) == data, name
            high_watermark = broker.log(topic).partition(0).high_watermark
            assert native.count() == source.count() == data.count(b"\n") == high_watermark, name


def _produce(broker: Serving, topic: str, data: bytes) -> None:
    broker.create_topic(topic, 1)
    answer = broker.http.post(f"/v1/topics/{topic}/records", content=data, headers={"Content-Type": "text/plain"})
    answer.raise_for_status()


def _lines(frame: DataFrame) -> bytes:
    rows = sorted((row.offset, bytes(row.value)) for row in frame.select("offset", "value").collect())
    return b"".join(value + b"\n" for _, value in rows)
