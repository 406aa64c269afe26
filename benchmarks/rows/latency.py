"""The time that one producer waits for its acknowledgement on an idle log, beside one PUT of the same size.

Both run on MinIO with the same store class, in turn. The pause between two produces is longer than the flush interval,
so that the log is idle each time.
"""

from __future__ import annotations

import json

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.loads.result import percentile_ms
from benchmarks.measure import Goal, Row, Side, compare, not_run
from benchmarks.processes import run_module
from benchmarks.tidelog_broker import TidelogBroker

COUNT = 200
GAP_MS = 300
WHAT = "ack latency on MinIO, one producer, idle log, one record of 1 KiB"
GOALS = (
    ("ack-latency-p50", 0.5, Goal("p50 at most 1.5 x one PUT of the same size", 1.5, at_least=False)),
    ("ack-latency-p99", 0.99, Goal("p99 at most 3 x one PUT of the same size", 3.0, at_least=False)),
)
CLIENT = "one request of one record over a kept connection, acks=all"
RAW = "ObjectStore.create of Tidelog's S3 class, as large as the log entry"


def rows(bench: Bench) -> list[Row]:
    if why := minio.missing():
        return [not_run(name, WHAT, goal, why) for name, _, goal in GOALS]
    server = minio.Minio(bench.children, bench.fresh_folder("latency"))
    store = f"s3://{minio.BUCKET}/latency"
    broker = TidelogBroker(bench.children, store, env=server.env)
    broker.create_topic("t")
    found: list[dict[str, list[float]]] = []
    for _ in range(bench.rounds):
        out = run_module(
            "benchmarks.loads.ack_latency",
            *("--port", broker.port, "--store", store, "--count", bench.scaled(COUNT), "--gap-ms", GAP_MS),
            env=server.env,
        )
        found.append(json.loads(out.strip().splitlines()[-1]))
    broker.stop()
    server.stop()
    size = f"entry of {found[-1]['entry_bytes']} bytes"
    return [
        compare(
            name,
            f"{WHAT}: {name[-3:]}",
            goal,
            Side("Tidelog", CLIENT, "ms", _at([one["ack_ms"] for one in found], part), [size]),
            Side("one PUT", RAW, "ms", _at([one["put_ms"] for one in found], part)),
        )
        for name, part, goal in GOALS
    ]


def _at(rounds: list[list[float]], part: float) -> list[float]:
    return [percentile_ms(sorted(times), part) / 1e3 for times in rounds]
