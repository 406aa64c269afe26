"""A stream into a topic whose driver, executors, tasks and broker are killed at random: each number is there once.

The suite kills a few times. `make soak ARGS=tests/spark/test_sink_killed.py` kills 200 times, in a cluster of
separate executors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from demo.broker_process import BrokerProcess
from tests.spark.killed_job import JobPlan, KilledJob, Victim

from tidelog.storage.runtime import SystemClock

pytestmark = pytest.mark.spark

PARTITIONS = 3
STALLED_S_MAX = 240.0
LOCAL, CLUSTER = "local[2,100]", "local-cluster[2,1,1024]"


@dataclass(frozen=True)
class Kills:
    """`total` kills, of `victims` in turn; of the broker, too, each `broker_every` kills."""

    total: int
    victims: Sequence[Victim]
    rows_per_batch: int
    master: str
    broker_every: int
    pause_s_max: float


@pytest.mark.timeout(600)
def test_each_number_is_written_once_however_often_the_job_is_killed(tmp_path: Path) -> None:
    victims = (Victim.WORKER, Victim.DRIVER, Victim.WORKER)
    prove_each_number_is_there_once(tmp_path, 7, Kills(3, victims, 500, LOCAL, 3, 1.5))


@pytest.mark.soak
def test_each_number_is_written_once_if_executors_are_killed(tmp_path: Path) -> None:
    prove_each_number_is_there_once(tmp_path, 7, Kills(4, (Victim.WORKER, Victim.EXECUTOR), 500, CLUSTER, 3, 1.5))


@pytest.mark.soak
def test_each_number_is_written_once_in_a_cluster_that_is_killed_200_times(tmp_path: Path) -> None:
    victims = (Victim.WORKER, Victim.WORKER, Victim.WORKER, Victim.EXECUTOR, Victim.EXECUTOR, Victim.DRIVER)
    prove_each_number_is_there_once(tmp_path, 200, Kills(200, victims, 500, CLUSTER, 20, 3.0))


def prove_each_number_is_there_once(folder: Path, seed: int, kills: Kills) -> None:
    """Kill as often as `kills` says, let the job write some batches more, and judge."""
    draw = random.Random(seed)
    broker = BrokerProcess(folder, {"store": f"file:{folder}/store"}, SystemClock())
    broker.start()
    with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
        body = {"name": "numbers", "partitions": PARTITIONS, "configs": {"retention.ms": -1}}
        client.post("/v1/topics", json=body).raise_for_status()
        endless = JobPlan(broker.url, "numbers", folder / "checkpoint", kills.rows_per_batch, kills.master)
        job = KilledJob(endless, folder / "job.log")
        try:
            done = _kill(job, broker, client, kills, draw)
            written = sum(_ends(client))
            _await(job, client, written + 2 * kills.rows_per_batch)
            job.end()
            _judge(client, folder, kills.rows_per_batch)
        finally:
            job.end()
            broker.stop()
    assert done == kills.total


def _kill(job: KilledJob, broker: BrokerProcess, client: httpx.Client, kills: Kills, draw: random.Random) -> int:
    """Kill parts of the job. It writes something between two kills of its driver, so every kill is within its work."""
    done, written = 0, 0
    while done < kills.total:
        if not job.running():
            job.start()
            _await(job, client, written + 1)
        time.sleep(draw.uniform(0, kills.pause_s_max))
        if not job.kill(kills.victims[done % len(kills.victims)], draw.random()):
            continue
        done += 1
        if done % kills.broker_every == 0:
            broker.kill()
            broker.start()
        written = sum(_ends(client))
    return done


def _await(job: KilledJob, client: httpx.Client, records: int) -> None:
    """Wait until the topic has so many records; start the job again if it ends."""
    deadline_s = time.monotonic() + STALLED_S_MAX
    while sum(_ends(client)) < records:
        if not job.running():
            job.start()
        assert time.monotonic() < deadline_s, f"the job writes nothing:\n{job.log_tail()}"
        time.sleep(0.1)


def _ends(client: httpx.Client) -> list[int]:
    described = client.get("/v1/topics/numbers").json()
    return [partition["high_watermark"] for partition in described["partitions"]]


def _judge(client: httpx.Client, folder: Path, rows_per_batch: int) -> None:
    """Each batch that Spark knows to be complete is there whole, and nothing is there twice."""
    found: list[int] = []
    for partition, end in enumerate(_ends(client)):
        numbers = _numbers(client, partition, end)
        found += numbers
    assert len(found) == len(set(found)), "a number was written twice"
    commits = [int(path.name) for path in (folder / "checkpoint" / "commits").iterdir() if path.name.isdecimal()]
    whole = (max(commits) + 1) * rows_per_batch
    missing = set(range(whole)) - set(found)
    assert not missing, f"{len(missing)} numbers are missing, from {min(missing)} on"
    assert max(found) < whole + rows_per_batch, "only the batch that was cut off may be there beyond"


def _numbers(client: httpx.Client, partition: int, end: int) -> list[int]:
    numbers: list[int] = []
    offset = 0
    while offset < end:
        answer = client.get(
            f"/v1/topics/numbers/partitions/{partition}/records",
            params={"offset": offset},
            headers={"Accept": "application/vnd.apache.arrow.stream"},
        )
        answer.raise_for_status()
        numbers += [int(value) for value in pa.ipc.open_stream(answer.content).read_all()["value"].to_pylist()]
        offset = int(answer.headers["tidelog-next-offset"])
    return numbers
