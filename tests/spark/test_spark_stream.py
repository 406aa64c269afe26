"""Streaming queries in a real Spark beside a real broker: every record once in the committed batches, also after the
query was killed, and for a stream that Spark's Kafka source began."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from tests.spark.serving import ARCHIVES, Serving, expected_row, record, records, serving
from tests.spark.stream_driver import batches, places, run_now, started

from tidelog.spark_connector import kafka_metrics, stream_lag

pytestmark = pytest.mark.spark

LIMITED = {"subscribe": "web", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "320"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Topic web: 500 cold records in partition 0, and 300 in partition 1."""
    folder = tmp_path_factory.mktemp("broker")
    with serving(folder, f"file:{folder}/store", ARCHIVES) as serving_broker:
        serving_broker.create_topic("web", 2)
        serving_broker.produce("web", 0, records(0, 0, 500))
        serving_broker.produce("web", 1, records(1, 0, 300))
        serving_broker.wait_until_archived("web")
        yield serving_broker


def all_of(topic: str, *counts: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


def test_a_killed_query_continues_from_its_checkpoint_with_the_same_batches(
    spark: SparkSession, broker: Serving, tmp_path: Path
) -> None:
    checkpoint, seen = tmp_path / "checkpoint", tmp_path / "seen"
    command = [sys.executable, "-m", "tests.spark.stream_driver", broker.url, str(checkpoint), str(seen), "2"]
    killed = subprocess.run(command, start_new_session=True, stderr=subprocess.DEVNULL, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [len(batch) for batch in batches(seen)] == [0, 320, 320]
    broker.produce("web", 0, records(0, 500, 550))

    replayed: list[int] = []
    run_now(spark, checkpoint, seen, replayed.append, broker=broker.url, **LIMITED)

    assert replayed[:2] == [2, 3], "the batch that was not committed runs again, with the same rows"
    assert places(seen) == all_of("web", 550, 300)


def test_a_query_that_fails_in_its_first_batch_still_begins_where_it_began(
    spark: SparkSession, broker: Serving, tmp_path: Path
) -> None:
    broker.create_topic("latest", 1)
    broker.produce("latest", 0, records(0, 0, 5))
    checkpoint, seen = tmp_path / "checkpoint", tmp_path / "seen"

    def fail(number: int) -> None:
        raise RuntimeError(f"batch {number} fails")

    with pytest.raises(StreamingQueryException, match="batch 0 fails"):
        run_now(spark, checkpoint, seen, fail, broker=broker.url, subscribe="latest")
    broker.produce("latest", 0, records(0, 5, 9))
    run_now(spark, checkpoint, seen, broker=broker.url, subscribe="latest")

    assert batches(seen) == [[], [("latest", 0, offset) for offset in range(5, 9)]]


def test_rows_have_all_columns_and_the_progress_has_the_lag(
    spark: SparkSession, broker: Serving, tmp_path: Path
) -> None:
    broker.create_topic("rows", 1)
    broker.produce("rows", 0, records(0, 0, 100))
    source = spark.readStream.format("tidelog").options(
        broker=broker.url,
        subscribe="rows",
        startingOffsets="earliest",
        includeHeaders="true",
        maxOffsetsPerTrigger="60",
    )
    query = (
        source.load()
        .writeStream.format("memory")
        .queryName("rows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    found: list[Row] = spark.table("rows").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [expected_row("rows", 0, record(0, n), headers=True) for n in range(100)]
    lags = [stream_lag(progress) for progress in query.recentProgress]
    assert lags == [{"rows": {0: 100}}, {"rows": {0: 40}}, {"rows": {0: 0}}]
    assert kafka_metrics(lags[1])["maxOffsetsBehindLatest"] == "40"


def test_a_stream_moves_from_sparks_kafka_source_with_its_checkpoint(
    spark: SparkSession, broker: Serving, tmp_path: Path
) -> None:
    """Batch 6 of the old query was planned and not committed."""
    checkpoint, seen = tmp_path / "checkpoint", tmp_path / "seen"
    write_kafka_checkpoint(checkpoint, {5: {"web": {"0": 480, "1": 290}}, 6: {"web": {"0": 490, "1": 290}}})
    seen.mkdir()
    for done in range(6):
        (seen / f"{done}.json").write_text("[]")

    run_now(spark, checkpoint, seen, broker=broker.url, subscribe="web")

    assert batches(seen)[6] == [("web", 0, offset) for offset in range(480, 490)]
    end = broker.log("web").partition(0).high_watermark
    assert places(seen) == [
        *(("web", 0, offset) for offset in range(480, end)),
        *(("web", 1, offset) for offset in range(290, 300)),
    ]
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)).read_text().splitlines()[-1]
    assert kafka_reads(newest) == {("web", 0): end, ("web", 1): 300}


def write_kafka_checkpoint(folder: Path, ends: dict[int, dict[str, dict[str, int]]]) -> None:
    """As Spark writes it for its Kafka source. The last batch is not committed."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')
    (folder / "sources/0/0").write_text('v1\n{"web":{"0":0,"1":0}}')
    for number, end in ends.items():
        about = '{"batchWatermarkMs":0,"batchTimestampMs":1763712000000,"conf":{"spark.sql.shuffle.partitions":"2"}}'
        offsets = json.dumps(end, separators=(",", ":"))
        (folder / f"offsets/{number}").write_text(f"v1\n{about}\n{offsets}")
        if number != max(ends):
            (folder / f"commits/{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')


def kafka_reads(text: str) -> dict[tuple[str, int], int]:
    """The offsets that Spark's Kafka source finds in a checkpoint (`JsonUtils.partitionOffsets`)."""
    topics: dict[str, dict[str, Any]] = json.loads(text)
    return {(topic, int(number)): int(offset) for topic, ends in topics.items() for number, offset in ends.items()}


def test_a_running_query_gets_records_as_they_come_and_stops(
    spark: SparkSession, broker: Serving, tmp_path: Path
) -> None:
    broker.create_topic("live", 1)
    source = spark.readStream.format("tidelog").options(broker=broker.url, subscribe="live")
    query = source.load().writeStream.format("memory").queryName("live").start()
    try:
        while not query.recentProgress:
            query.awaitTermination(timeout=0.05)
        for first in (0, 3):
            broker.produce("live", 0, records(0, first, first + 3))
            query.processAllAvailable()
            assert spark.table("live").count() == first + 3
    finally:
        query.stop()
    assert query.exception() is None


def test_a_wrong_option_fails_the_query_and_is_named(spark: SparkSession, broker: Serving, tmp_path: Path) -> None:
    query = started(
        spark, tmp_path / "checkpoint", tmp_path / "seen", broker=broker.url, subscribe="web", endingOffsets="latest"
    )

    with pytest.raises(StreamingQueryException, match="a stream has no end: remove endingOffsets"):
        query.awaitTermination()
