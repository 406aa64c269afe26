"""Looks up a record at a random old offset, through a broker and with `SegmentReader` alone, beside a raw GET of the
row group that holds it.

MinIO runs on the disk under test. The data is in the machine's page cache, so the difference is Tidelog's own cost. The
reader knows the footers and the manifest, like any broker that has run for a while, but never the row group.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, compare, not_run
from benchmarks.minio import Minio
from benchmarks.processes import Failed, run_module
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import TidelogBroker

RECORDS = 2_000_000
ARCHIVE_SECONDS = 240.0
GOAL = Goal("1.3 x a raw GET of the row group, p50", 1.3, at_least=False)
WHAT = "look up 100 records at random old offsets, MinIO, one row group each"
CLIENTS = {
    "broker": "over HTTP, one kept connection, Arrow",
    "reader": "SegmentReader in the load program, straight from the bucket",
}
WAYS = {"broker": "through a broker", "reader": "SegmentReader alone"}
RAW_CLIENT = "ObjectStore.get of the row group's range in the load program"


def rows(bench: Bench) -> list[Row]:
    """Two rows: through the broker, and without one."""
    if why := minio.missing():
        return [not_run(f"cold-read-{way}", WHAT, GOAL, why) for way in CLIENTS]
    folder = bench.fresh_folder("cold-read")
    server = Minio(bench.children, folder)
    store = f"s3://{minio.BUCKET}/cold"
    broker = TidelogBroker(bench.children, store, {"archiver.interval.ms": 500}, server.env)
    broker.create_topic("t")
    records = bench.scaled(RECORDS)
    prebuilt(bench, broker, "events", 2_500, records, "t")
    wait_until_cold(broker, "t", records)
    rounds = bench.rounds
    arguments = ("--port", broker.port, "--store", store, "--topic", "t", "--rounds", rounds)
    found = json.loads(run_module("benchmarks.loads.cold_reads", *arguments, env=server.env))
    broker.stop()
    server.stop()
    return [_row(way, found) for way in CLIENTS]


def _row(way: str, found: Mapping[str, Any]) -> Row:
    p50_ms, p99_ms = found["p50_ms"], found["p99_ms"]
    ours_facts = [f"p99 {p99_ms[way]:.1f} ms"]
    if way == "broker":
        ours_facts.append(f"{found['broker_gets']:.2f} GETs of segments per lookup")
        ours_facts.append(
            f"includes HTTP to the broker and back; the lookup alone, in one process: {p50_ms['reader']:.1f} ms"
        )
    raw_facts = [f"p99 {p99_ms['raw']:.1f} ms, boto3's get_object p50 {p50_ms['boto3']:.1f} ms"]
    raw_facts.append(f"a bare socket with requests signed beforehand: p50 {p50_ms['socket']:.1f} ms")
    raw_facts.append(f"a GET of the bytes that the reader fetches: p50 {p50_ms['part']:.1f} ms")
    raw_facts.append(f"{found['groups']} row groups of {found['bytes'] / 1e6:.2f} MB")
    ours = Side("Tidelog", CLIENTS[way], "ms", [p50_ms[way]], ours_facts)
    return compare(
        f"cold-read-{way}",
        f"{WHAT}; {WAYS[way]}",
        GOAL,
        ours,
        Side("raw GET", RAW_CLIENT, "ms", [p50_ms["raw"]], raw_facts),
    )


def wait_until_cold(broker: TidelogBroker, topic: str, records: int) -> None:
    """Wait until the first `records` of partition 0 are in segments."""
    deadline = time.monotonic() + ARCHIVE_SECONDS
    while (log := broker.log(topic)).cold_end < records:
        if time.monotonic() > deadline:
            raise Failed(f"{log.cold_end} of {records} records were archived in {ARCHIVE_SECONDS:.0f} s")
        time.sleep(0.2)
