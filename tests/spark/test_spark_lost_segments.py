"""Segments are merged and deleted between a query's plan and its read: the data source finds the records in the new
segment by itself, and `replan_once` plans a query with `read` again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.serving import ARCHIVES, expected_row, records, rows_of, serving
from tests.spark.upkeep_worker import UpkeepWorker

from tidelog.spark_connector import read, replan_once
from tidelog.spark_connector.options.read_options import parse_options
from tidelog.spark_connector.queries.second_plan import missing_segment
from tidelog.spark_connector.reads.pruning import Pruning
from tidelog.spark_connector.reads.rows import read_task, row_schema
from tidelog.spark_connector.source import plan_tasks
from tidelog.storage.errors import NotFound

SEGMENT = f"topics/web/{'70' * 16}/0000-{'1' * 32}.parquet"
RECORDS = 400
EXPECTED = [expected_row("web", 0, each) for each in records(0, 0, RECORDS)]


@pytest.fixture
def broker_url(tmp_path: Path) -> Iterator[str]:
    """A broker with the topic `web` in segments of level 0, which it leaves to others."""
    with serving(tmp_path, f"file:{tmp_path}/store", {**ARCHIVES, "archiver.upkeep": "false"}) as broker:
        broker.create_topic("web", 1)
        for start in range(0, RECORDS, 100):
            broker.produce("web", 0, records(0, start, start + 100))
            broker.wait_until_archived("web")
        yield broker.url


@pytest.fixture
def worker(tmp_path: Path, broker_url: str) -> UpkeepWorker:
    (topic,) = (tmp_path / "store" / "topics" / "web").iterdir()
    return UpkeepWorker(tmp_path / "store", "web", topic.name)


@pytest.fixture
def lose(worker: UpkeepWorker) -> Callable[[], None]:
    """Merge the segments and delete those that were merged."""

    async def merge_and_collect() -> None:
        await worker.merge()
        await worker.collect()

    return lambda: asyncio.run(merge_and_collect())


@pytest.mark.spark
def test_a_query_with_read_outlives_a_merge_and_is_planned_again_after_the_collection(
    spark: SparkSession, broker_url: str, worker: UpkeepWorker, caplog: pytest.LogCaptureFixture
) -> None:
    stale = read(spark, broker=broker_url, subscribe="web")
    asyncio.run(worker.merge())
    assert rows_of(stale) == EXPECTED  # the replaced segments stay for file.delete.delay.ms

    planned: list[DataFrame] = []

    def query() -> list[object]:
        frame = stale if not planned else read(spark, broker=broker_url, subscribe="web")
        planned.append(frame)
        return list(rows_of(frame))

    asyncio.run(worker.collect())
    with caplog.at_level("INFO", "tidelog.spark_connector"):
        assert replan_once(query) == EXPECTED
    assert [len(frame.inputFiles()) for frame in planned] == [4, 1]
    assert "the query is planned again" in caplog.text


@pytest.mark.spark
def test_a_query_whose_segments_are_gone_twice_says_what_to_do(
    spark: SparkSession, broker_url: str, lose: Callable[[], None]
) -> None:
    stale = read(spark, broker=broker_url, subscribe="web")
    lose()
    with pytest.raises(Exception, match=r"FAILED_READ_FILE\.FILE_NOT_EXIST") as raised:
        stale.collect()
    gone = missing_segment(raised.value)
    assert gone is not None
    assert f"/{gone}" in "".join(stale.inputFiles())

    with pytest.raises(NotFound, match=r"topics/web/.*second time.*Call read\(\) within.*file\.delete\.delay\.ms"):
        replan_once(stale.collect)


def test_tasks_of_the_data_source_find_the_records_by_themselves(broker_url: str, lose: Callable[[], None]) -> None:
    tasks = plan_tasks(parse_options({"broker": broker_url, "subscribe": "web"}), Pruning())
    lose()
    batches = [batch for task in tasks for batch in read_task(task, row_schema(include_headers=False))]
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert sorted(offsets) == list(range(RECORDS))


@pytest.mark.parametrize(
    "text",
    [
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///elsewhere/users.parquet.",
        f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://bucket/{SEGMENT}.",
    ],
    ids=["another table's file", "a damaged segment"],
)
def test_other_errors_are_not_a_reason_to_plan_again(text: str) -> None:
    calls: list[int] = []

    def query() -> None:
        calls.append(1)
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match="FAILED_READ_FILE"):
        replan_once(query)
    assert calls == [1]


@pytest.mark.parametrize("sign", ["FAILED_READ_FILE.FILE_NOT_EXIST", "PATH_NOT_FOUND"])
def test_the_missing_segment_is_found_in_sparks_error(sign: str) -> None:
    assert missing_segment(RuntimeError(f"[{sign}] s3a://bucket/a prefix/{SEGMENT}. SQLSTATE: 42K03")) == SEGMENT
