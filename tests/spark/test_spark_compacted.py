"""A compacted topic in Spark: gaps are not data loss, even if a read begins or ends in one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.serving import (
    ARCHIVES,
    KEEPS_HOT,
    SETTLE_S_MAX,
    Record,
    Serving,
    expected_row,
    record,
    rows_of,
    serving,
)

from tidelog.spark_connector import read

pytestmark = pytest.mark.spark

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
COLD_END, END, KEYS = 600, 640, 50
Reader = Callable[..., DataFrame]


def keyed(offset: int) -> Record:
    return replace(record(0, offset), key=b"key-%d" % (offset % KEYS))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Topic `ages`: the last 50 of its archived records remain, and 40 are hot."""
    folder = tmp_path_factory.mktemp("broker")
    with serving(folder, f"file:{folder}/store", ARCHIVES) as first:
        first.create_topic("ages", 1, COMPACT)
        for begin in range(0, COLD_END, 200):
            first.produce("ages", 0, [keyed(offset) for offset in range(begin, begin + 200)])
            first.wait_until_archived("ages")
        wait_until_compacted(first)
    with serving(folder, f"file:{folder}/store", KEEPS_HOT) as second:
        second.produce("ages", 0, [keyed(offset) for offset in range(COLD_END, END)])
        yield second


def cold_records(broker: Serving) -> int:
    return sum(segment.records for segment in broker.log("ages").segments)


def wait_until_compacted(broker: Serving) -> None:
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while (left := cold_records(broker)) > KEYS:
        assert time.monotonic() < deadline_s, f"not compacted within {SETTLE_S_MAX} s: {left} records"
        time.sleep(0.02)


@pytest.fixture(params=["data source", "native"])
def reader(request: pytest.FixtureRequest, spark: SparkSession, broker: Serving) -> Reader:
    if request.param == "native":
        return lambda **options: read(spark, broker=broker.url, subscribe="ages", **options)
    return lambda **options: spark.read.format("tidelog").options(broker=broker.url, subscribe="ages", **options).load()


def test_spark_gives_what_http_gives(reader: Reader, broker: Serving) -> None:
    left = [keyed(offset) for offset in range(COLD_END - KEYS, END)]
    assert broker.fetch_all("ages", 0) == left
    assert [tuple(row) for row in rows_of(reader())] == [expected_row("ages", 0, each) for each in left]


@pytest.mark.parametrize(("start", "end"), [(3, 500), (100, 555), (549, 610), (0, END)])
def test_a_read_may_begin_and_end_in_a_gap(reader: Reader, start: int, end: int) -> None:
    frame = reader(startingOffsets=json.dumps({"ages": {"0": start}}), endingOffsets=json.dumps({"ages": {"0": end}}))
    assert [row.offset for row in rows_of(frame)] == list(range(max(start, COLD_END - KEYS), end))
