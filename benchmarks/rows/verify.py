"""`tidelog bucket verify` of 12.8 TB: 100,000 simulated segments of 128 MiB. A request takes 30 ms, as on S3.

It is a shallow verification: it compares the listing of all segments with the manifest of their shard. Peak memory is
given as the increase over the simulated bucket, which is in the same process.
"""

from __future__ import annotations

import json

from benchmarks.bench import Bench
from benchmarks.loads.verify_walk import Walk
from benchmarks.made_up_bucket import REQUEST_S
from benchmarks.measure import Goal, Row, Side
from benchmarks.processes import run_module

TOPICS, SEGMENTS = 1_000, 100
CLIENT = f"one process, 32 requests at a time of {REQUEST_S * 1e3:.0f} ms each"


def rows(bench: Bench) -> list[Row]:
    segments = bench.scaled(SEGMENTS)
    walks = [_walk(segments) for _ in range(bench.rounds)]
    last = walks[-1]
    what = f"verify of {last.stored_bytes / 1e12:.2f} TB in {TOPICS * segments:,} segments, {TOPICS:,} topics, shallow"
    facts = [
        f"{last.requests:,} requests, {last.cpu_s:.0f} s of CPU, {last.cpu_s / last.objects * 1e3:.1f} ms a segment"
    ]
    took = Side("Tidelog", CLIENT, "s", [walk.seconds for walk in walks], facts)
    grew = Side("Tidelog", CLIENT, "MiB", [walk.grown_bytes / 2**20 for walk in walks])
    return [
        Row("verify-time", what, Goal("at most 5 minutes", 300, at_least=False), took.median, [took]),
        Row("verify-memory", f"{what}: memory", Goal("at most 256 MiB more", 256, at_least=False), grew.high, [grew]),
    ]


def _walk(segments: int) -> Walk:
    printed = run_module("benchmarks.loads.verify_walk", "--topics", TOPICS, "--segments", segments)
    return Walk(**json.loads(printed))
