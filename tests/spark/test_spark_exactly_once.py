"""Each record exactly once, while others are produced and the archiver moves the cold end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.serving import ARCHIVES, Serving, records, serving

from tidelog.spark_connector import read

pytestmark = pytest.mark.spark

PARTITIONS = 2
BATCH = 200
ROUNDS_HOT = 3
BORDERS = 3
SETTLE_S_MAX = 60.0


class Load:
    """Produces to both partitions until stopped; `produced` counts acknowledged records. After a few rounds it waits
    for the archiver, so that segments and hot tail grow in turn."""

    def __init__(self, broker: Serving) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.produced = [0] * PARTITIONS

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(ROUNDS_HOT):
                self._produce_round()
            self._broker.wait_until_archived("busy")

    def _produce_round(self) -> None:
        for partition in range(PARTITIONS):
            start = self.produced[partition]
            self._broker.produce("busy", partition, records(partition, start, start + BATCH))
            self.produced[partition] = start + BATCH


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    """Archives all the time, so that the cold end moves during every read."""
    with serving(tmp_path, f"file:{tmp_path}/store", ARCHIVES) as serving_broker:
        serving_broker.create_topic("busy", PARTITIONS)
        yield serving_broker


@pytest.mark.parametrize("way", ["data source", "native"])
def test_reads_under_load_are_dense_and_hold_all_that_was_acknowledged_before(
    spark: SparkSession, broker: Serving, way: str
) -> None:
    frames: dict[str, Callable[[], DataFrame]] = {
        "native": lambda: read(spark, broker=broker.url, subscribe="busy"),
        "data source": lambda: spark.read.format("tidelog").options(broker=broker.url, subscribe="busy").load(),
    }
    borders: set[int] = set()
    deadline_s = time.monotonic() + SETTLE_S_MAX

    with Load(broker) as load:
        while len(borders) < BORDERS:  # as many reads as needed to see the cold end move during one
            assert time.monotonic() < deadline_s, f"the archiver moved the border to {borders} only"
            acknowledged = list(load.produced)
            borders.add(broker.log("busy").partition(0).cold_end)
            for partition, offsets in enumerate(_offsets(frames[way]())):
                assert offsets == list(range(len(offsets)))
                assert len(offsets) >= acknowledged[partition]

    assert [len(offsets) for offsets in _offsets(frames[way]())] == load.produced


def test_a_snapshot_is_read_whole_after_its_hot_tail_was_archived(spark: SparkSession, broker: Serving) -> None:
    with Load(broker) as load:
        frames = []
        while len(frames) < 3:
            acknowledged = list(load.produced)
            ends = broker.log("busy").partition(0)
            if ends.cold_end < ends.high_watermark:  # a hot tail now, most likely still there at the read
                frames.append((read(spark, broker=broker.url, subscribe="busy"), acknowledged))
    broker.wait_until_archived("busy")

    for frame, acknowledged in frames:
        once = _offsets(frame)
        assert [len(offsets) >= before for offsets, before in zip(once, acknowledged, strict=True)] == [True, True]
        assert once == [list(range(len(offsets))) for offsets in once] == _offsets(frame)


def _offsets(frame: DataFrame) -> list[list[int]]:
    """Offsets of each partition, ascending."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for row in frame.select("partition", "offset").collect():
        found[row.partition].append(row.offset)
    return [sorted(offsets) for offsets in found]
