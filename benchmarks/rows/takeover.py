"""Takeover of a shard whose WAL has 10,000 entries, on MinIO: from the start of a broker to its first answer to a
produce, without the wait for a dead leader's lease."""

from __future__ import annotations

import json

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.processes import run_module

ENTRIES = 10_000
WHAT = "takeover of a shard with 10,000 WAL entries, on MinIO"
GOALS = (
    ("takeover-seconds", "answered_s", "s", Goal("first produce answered within 2 s", 2.0, at_least=False)),
    ("takeover-requests", "requests", "requests", Goal("no more than tens of requests", 99, at_least=False)),
)
CLIENT = "a broker's start on the log, then one produce of one record"


def rows(bench: Bench) -> list[Row]:
    if why := minio.missing():
        return [not_run(name, WHAT, goal, why) for name, _, _, goal in GOALS]
    server = minio.Minio(bench.children, bench.fresh_folder("takeover"))
    out = run_module(
        "benchmarks.loads.takeover",
        *("--store", f"s3://{minio.BUCKET}/takeover", "--entries", bench.scaled(ENTRIES), "--opens", bench.rounds),
        env=server.env,
    )
    server.stop()
    found: dict[str, list[float]] = json.loads(out.strip().splitlines()[-1])
    sides = {name: Side("Tidelog", CLIENT, unit, found[field]) for name, field, unit, _ in GOALS}
    return [Row(name, WHAT, goal, sides[name].median, [sides[name]]) for name, _, _, goal in GOALS]
