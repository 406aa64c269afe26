"""kill -9 of the process that stages and commits batches, and of the broker: each batch is in the topic once.

It is the publisher of Spark's sink without Spark, so that hundreds of kills take minutes: `make soak` kills 200 times.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from demo.broker_process import BrokerProcess
from tests.spark.sink_process import TASKS, next_batch
from tests.spark.sink_world import BatchTarget, attempt, check_once

from tidelog.storage.runtime import SystemClock

BROKER_EVERY = 4
IDLE_S_MAX = 60.0
PARTITIONS = 2


@pytest.mark.timeout(300)
def test_each_batch_is_there_once_after_kills(tmp_path: Path) -> None:
    prove_each_batch_is_there_once(tmp_path, kills=10, seed=14)


@pytest.mark.soak
def test_each_batch_is_there_once_after_200_kills(tmp_path: Path) -> None:
    prove_each_batch_is_there_once(tmp_path, kills=200, seed=15)


def prove_each_batch_is_there_once(folder: Path, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    broker = BrokerProcess(folder, {"store": f"file:{folder}/store"}, SystemClock())
    broker.start()
    target = BatchTarget(broker.url, TASKS)
    try:
        body = {"name": "orders", "partitions": PARTITIONS, "configs": {"retention.ms": -1}}
        target.http.post("/v1/topics", json=body).raise_for_status()
        for number in range(1, kills + 1):
            driver = started(broker.url, folder)
            try:
                wait_for_work(driver, target)
                time.sleep(draw.uniform(0, 0.3))
                if number % BROKER_EVERY == 0:
                    broker.kill()
                    broker.start()
            finally:
                driver.kill()
                driver.wait()
        last = next_batch(folder)
        attempt(target, "orders", last, "end", "orders")
        attempts = check_once(target, "orders", last + 1)
    finally:
        target.http.close()
        broker.stop()
    assert len(set(attempts.values())) > kills // 2, "most of the processes wrote a batch"


def started(url: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink_process", url, "orders", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )


def wait_for_work(driver: subprocess.Popen[bytes], target: BatchTarget) -> None:
    """Wait until the driver has appended something."""
    before, deadline_s = ends(target), time.monotonic() + IDLE_S_MAX
    while ends(target) == before:
        assert driver.poll() is None, "the driver ended by itself"
        assert time.monotonic() < deadline_s, "the driver appends nothing"
        time.sleep(0.005)


def ends(target: BatchTarget) -> list[int]:
    described = target.http.get("/v1/topics/orders").json()
    return [partition["high_watermark"] for partition in described["partitions"]]
