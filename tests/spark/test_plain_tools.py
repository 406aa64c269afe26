"""Tools that know nothing of Tidelog read a topic's folder at every level of segments, with `partition` as a column."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import draft
from tests.spark.upkeep_worker import AT_ONCE, UpkeepWorker

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.upkeep.merge_plan import FAN_IN_MIN
from tidelog.storage.upkeep.rules import UpkeepRules

PARTITIONS, RUNS, RECORDS = 3, FAN_IN_MIN, 5
"""`RECORDS` of each partition in each run."""
START_MS = 4_000_000_000_000

Row = tuple[int, int, int, bytes | None, bytes | None]
"""Partition, offset, timestamp in ms, key, value."""


def row(partition: int, offset: int) -> Row:
    key = None if offset % 3 else b"k%d" % offset
    return partition, offset, START_MS + offset, key, None if offset % 7 == 6 else b"%d of %d" % (offset, partition)


EXPECTED = [row(partition, offset) for partition in range(PARTITIONS) for offset in range(RUNS * RECORDS)]


async def archived(root: Path, level: int) -> Path:
    """A topic whose folder holds segments of `level` and no others."""
    async with running_broker(LocalObjectStore(root), shards=1, archiver_upkeep=False) as broker:
        topic = await broker.create_topic(ANYBODY, "web", PARTITIONS, {"retention.ms": -1})
        for first in range(0, RUNS * RECORDS, RECORDS):
            for partition in range(PARTITIONS):
                rows = [row(partition, offset) for offset in range(first, first + RECORDS)]
                _, _, times, keys, values = zip(*rows, strict=True)
                made = draft(values, keys=keys, timestamps=times)
                await broker.produce(ANYBODY, "web", made, ProduceOptions(partition=partition))
            await broker.archive_now()
    worker = UpkeepWorker(root, "web", topic.topic_id)
    if level:
        await worker.merge(AT_ONCE if level == 2 else gathering(await worker.segments()))
        await worker.collect()
    assert {segment.level for segment in await worker.segments()} == {level}
    return root / "topics" / "web"


def gathering(segments: Any) -> UpkeepRules:
    """Rules by which these runs of level 0 become one of level 1."""
    return UpkeepRules(segment_ms=2**60, segment_bytes=8 * sum(segment.size_bytes for segment in segments))


@pytest.fixture(scope="module", params=[0, 1, 2], ids=lambda level: f"level {level}")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(archived(tmp_path_factory.mktemp("bucket"), request.param))


def by_pyarrow(folder: Path) -> pa.Table:
    return ds.dataset(folder).to_table()


def by_pandas(folder: Path) -> pa.Table:
    return pa.Table.from_pandas(pd.read_parquet(folder, dtype_backend="pyarrow"), preserve_index=False)


def by_duckdb(folder: Path) -> pa.Table:
    return duckdb.execute("SELECT * FROM read_parquet($files)", {"files": f"{folder}/*/*.parquet"}).to_arrow_table()


def by_polars(folder: Path) -> pa.Table:
    """Runs where polars is installed, as in `tests/client/test_topic_scan.py`."""
    polars = pytest.importorskip("polars")
    found: pa.Table = polars.scan_parquet(f"{folder}/*/*.parquet").collect().to_arrow()
    return found


def rows_of(found: pa.Table) -> list[Row]:
    times = found["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    columns = (found["partition"], found["offset"], times, found["key"], found["value"])
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=lambda row: row[:2])


@pytest.mark.parametrize("read", [by_pyarrow, by_pandas, by_duckdb, by_polars])
def test_a_tool_reads_each_record_of_the_folder_once(folder: Path, read: Callable[[Path], pa.Table]) -> None:
    assert rows_of(read(folder)) == EXPECTED


@pytest.mark.spark
def test_plain_spark_reads_each_record_of_the_folder_once(folder: Path, request: pytest.FixtureRequest) -> None:
    spark = request.getfixturevalue("spark")
    assert rows_of(spark.read.parquet(f"file://{folder}/*").toArrow()) == EXPECTED


def test_a_filter_on_the_partition_finds_its_records(folder: Path) -> None:
    frame = pd.read_parquet(folder, filters=[("partition", "==", 1), ("offset", ">=", 70)])
    assert sorted(zip(frame["partition"], frame["offset"], strict=True)) == [(1, offset) for offset in range(70, 80)]
