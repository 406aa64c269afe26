"""Takeover of a shard whose WAL has 10,000 entries, and of a shard with 10,000 partitions, on MinIO.

The clock runs from the start of a broker to its first answer to a produce, without the wait for a dead leader's lease.
Each of the 10,000 partitions has records in a segment and in the WAL. There the row also says when the broker has
answered for the end of every partition, which opens all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.processes import run_module

ENTRIES = 10_000
PARTITIONS, PARTITION_ENTRIES, SPANS = 10_000, 2_000, 50
TWO_S = Goal("first produce answered within 2 s", 2.0, at_least=False)
LONG = f"takeover of a shard with {ENTRIES:,} WAL entries, on MinIO"
WIDE = (
    f"takeover of a shard with {PARTITIONS:,} partitions and {PARTITION_ENTRIES:,} WAL entries, each with records of "
    f"{SPANS} partitions, on MinIO"
)
ROWS = (
    ("takeover-seconds", LONG, "answered_s", "s", TWO_S),
    ("takeover-requests", LONG, "requests", "requests", Goal("no more than tens of requests", 99, at_least=False)),
    ("takeover-partitions", WIDE, "answered_s", "s", TWO_S),
)
CLIENT = "a broker's start on the log, then one produce of one record"
WIDE_CLIENT = f"{CLIENT}, then one call for the ends of all partitions"


def rows(bench: Bench) -> list[Row]:
    if why := minio.missing():
        return [not_run(name, what, goal, why) for name, what, _, _, goal in ROWS]
    server = minio.Minio(bench.children, bench.fresh_folder("takeover"))
    long = _opened(bench, server, "long", "--entries", bench.scaled(ENTRIES))
    shape = ("--partitions", bench.scaled(PARTITIONS), "--spans", SPANS)
    wide = _opened(bench, server, "wide", "--entries", bench.scaled(PARTITION_ENTRIES), *shape)
    server.stop()
    return [_row(each, wide if each[1] is WIDE else long) for each in ROWS]


def _opened(bench: Bench, server: minio.Minio, folder: str, *arguments: object) -> Mapping[str, list[float]]:
    store = f"s3://{minio.BUCKET}/takeover-{folder}"
    options = ("--store", store, "--opens", bench.rounds, *arguments)
    out = run_module("benchmarks.loads.takeover", *options, env=server.env)
    found: dict[str, list[float]] = json.loads(out.strip().splitlines()[-1])
    return found


def _row(row: tuple[str, str, str, str, Goal], found: Mapping[str, list[float]]) -> Row:
    name, what, field, unit, goal = row
    facts = [f"the ends of all partitions answered after {max(found['every_end_s']):.2f} s"] if what is WIDE else []
    side = Side("Tidelog", WIDE_CLIENT if what is WIDE else CLIENT, unit, found[field], facts)
    return Row(name, what, goal, side.median, [side])
