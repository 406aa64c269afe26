"""A full replay of a partition by one consumer over HTTP, beside pyarrow reading the same files; local and on MinIO.

The segments are merged beforehand (`tidelog compactor --once`). The broker is restarted, so none of their records is in
its memory. The data is in the machine's page cache for both.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.minio import Minio
from benchmarks.processes import Failed, run, run_module
from benchmarks.rows.cold_read import wait_until_cold
from benchmarks.rows.memory import peak_mib
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import SERVE, TidelogBroker

RECORDS = 3_000_000
GOAL = Goal("0.7 x the MB/s of pyarrow reading the same files", 0.7)
CONSUMER = "tidelog.client Consumer over HTTP, decodes stored row groups: sums the bytes of values"
PYARROW = "pyarrow dataset.to_batches over the same segments: sums the bytes of values"
ARCHIVES = {"archiver.interval.ms": 500, "archiver.upkeep": "false"}
QUIET = {"archiver.interval.ms": 86_400_000, "archiver.upkeep": "false"}


def rows(bench: Bench) -> list[Row]:
    """Two rows: a local store, and MinIO."""
    local = f"file:{bench.fresh_folder('replay') / 'tidelog'}"
    found = [_replay(bench, "local", local, {})]
    if why := minio.missing():
        return [*found, not_run("replay-minio", _what("minio"), GOAL, why)]
    server = Minio(bench.children, bench.fresh_folder("replay-minio"))
    found.append(_replay(bench, "minio", f"s3://{minio.BUCKET}/replay", server.env))
    server.stop()
    return found


def _replay(bench: Bench, place: str, store: str, env: Mapping[str, str]) -> Row:
    records = bench.scaled(RECORDS)
    broker = TidelogBroker(bench.children, store, ARCHIVES, env)
    broker.create_topic("t", configs={"segment.ms": 1})
    prebuilt(bench, broker, "events", 2_500, records, "t")
    wait_until_cold(broker, "t", records)
    broker.stop()
    run([sys.executable, "-c", SERVE, "compactor", "--store", store, "--once"], env)
    broker = TidelogBroker(bench.children, store, QUIET, env)
    broker_cpu: list[float] = []

    def consume() -> LoadResult:
        before = broker.process.cpu_seconds()
        result = _read(broker, "consumer", records, env)
        broker_cpu.append(broker.process.cpu_seconds() - before)
        return result

    consume()  # loads footers, opens connections, and fills the page cache
    broker_cpu.clear()
    found = interleave(bench.rounds, {"ours": consume, "theirs": lambda: _read(broker, "pyarrow", records, env)})
    held_mib = peak_mib(broker.process.pid)
    broker.stop()
    ours, theirs = found["ours"], found["theirs"]
    cpu = f"CPU s: broker {broker_cpu[-1]:.1f}, consumer {ours[-1].cpu_seconds:.1f}"
    side = Side("Tidelog", CONSUMER, "MB/s", [one.mb_per_s for one in ours], [cpu, f"broker's peak {held_mib:.0f} MiB"])
    pyarrow = Side(
        "pyarrow", PYARROW, "MB/s", [one.mb_per_s for one in theirs], [f"CPU s: {theirs[-1].cpu_seconds:.1f}"]
    )
    return compare(f"replay-{place}", _what(place), GOAL, side, pyarrow)


def _read(broker: TidelogBroker, way: str, records: int, env: Mapping[str, str]) -> LoadResult:
    out = run_module("benchmarks.loads.replay", "--url", broker.url, "--topic", "t", "--by", way, env=env)
    result = LoadResult.from_output(out)
    if result.records != records:
        raise Failed(f"{way} read {result.records} records of {records}")
    return result


def _what(place: str) -> str:
    return f"replay of a partition of JSON events of 376 bytes from segments, {place}"
