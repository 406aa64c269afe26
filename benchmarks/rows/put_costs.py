"""Requests at the price of a PUT for a GB of events on MinIO, with all background work on: many partitions and many
topics, each against one topic of four partitions.

MinIO counts the requests of every client. The broker's counters and the versions of the manifests say what they were
for. Each side has a bucket and a broker of its own, one after the other.

The work of ten minutes has to fit into one. So the times are a fifth of their defaults (`SETTINGS`): between two PUTs
of a log, and between two passes of the archiver. The load is as dense as 2 MB/s at the defaults: with more bytes for
each PUT, all sides would cost less. A segment is merged after `segment.ms`, which is so short here that merging is due
twice while the load runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, not_run
from benchmarks.minio import Minio
from benchmarks.processes import run_module
from benchmarks.tidelog_broker import TidelogBroker

SECONDS, QUICK_SECONDS = 40.0, 4.0
SETTINGS = {"flush.interval.ms": 50, "archiver.interval.ms": 12_000}
SEGMENT_MS = 15_000
REQUESTS_PER_S, REQUEST_RECORDS, CONNECTIONS = 200, 130, 16
SETTLE_SECONDS = 15.0
"""A little more than the time between two passes. Fewer entries than a pass costs PUTs wait longer."""
WHAT = "PUT-priced requests for a GB of JSON events, MinIO, all background work on, 10 MB/s"
CLIENT = f"{REQUESTS_PER_S} Arrow requests/s of {REQUEST_RECORDS} events, spread over the partitions"
PARTITIONS_GOAL = Goal("at most 1.25 x one topic of 4", 1.25, at_least=False)
TOPICS_GOAL = Goal("at most 2 x one topic of 4", 2.0, at_least=False)


@dataclass(frozen=True)
class Shape:
    """How many topics there are, and the partitions of each."""

    topics: int
    partitions: int

    def __str__(self) -> str:
        topics = "one topic" if self.topics == 1 else f"{self.topics} topics"
        return f"{topics} of {self.partitions:,} partitions"


FEW, PARTITIONS, TOPICS = Shape(1, 4), Shape(1, 1_000), Shape(100, 10)
ROWS = (
    ("puts-priced-partitions", f"{WHAT}: {PARTITIONS} against {FEW}", PARTITIONS_GOAL, PARTITIONS),
    ("puts-priced-topics", f"{WHAT}: {TOPICS} against {FEW}", TOPICS_GOAL, TOPICS),
)


@dataclass(frozen=True)
class Priced:
    """The requests of one side, counted by MinIO (`all`) and by the broker (`by_purpose`), during and after `load`.
    `merges`: how many versions of the manifests a merge made. `archived`: the share of the records in segments."""

    load: LoadResult
    seconds: float
    all: int
    by_purpose: Mapping[str, int]
    merges: int
    archived: float

    @property
    def per_gb(self) -> float:
        return self.all / self.load.gb


def rows(bench: Bench) -> list[Row]:
    """Two rows from one run of each side, because a side takes more than a minute."""
    if why := minio.missing():
        return [not_run(name, what, goal, why) for name, what, goal, _ in ROWS]
    server = Minio(bench.children, bench.fresh_folder("put-costs"))
    few = _side(FEW, _priced(bench, server, FEW))
    found = [
        compare(name, what, goal, _side(shape, _priced(bench, server, shape)), few) for name, what, goal, shape in ROWS
    ]
    server.stop()
    return found


def _side(shape: Shape, priced: Priced) -> Side:
    purposes = ", ".join(f"{name} {count / priced.load.gb:,.0f}" for name, count in priced.by_purpose.items())
    counted = sum(priced.by_purpose.values())
    facts = [
        f"by purpose: {purposes}; the broker counted {counted:,} in all, MinIO {priced.all:,}",
        f"{priced.load.mb_per_s:.1f} MB/s for {priced.load.seconds:.0f} s, counted for {priced.seconds:.0f} s, "
        f"{priced.merges} merges in that time; {priced.archived:.0%} of the records were archived at its end",
    ]
    return Side(str(shape), CLIENT, "requests/GB", [priced.per_gb], facts)


def _priced(bench: Bench, server: Minio, shape: Shape) -> Priced:
    """One side: from the start of its load until the archiver had time for it."""
    store = f"s3://{minio.BUCKET}/costs-{shape.topics}-{shape.partitions}"
    broker = TidelogBroker(bench.children, store, SETTINGS, server.env)
    names = ["t"] if shape.topics == 1 else [f"t-{number}" for number in range(shape.topics)]
    for name in names:
        broker.create_topic(name, shape.partitions, {"segment.ms": SEGMENT_MS})
    known_before = _by_purpose(broker, server, store)
    all_before, began_s = server.put_priced(), time.monotonic()
    load = _load(bench, broker, shape)
    time.sleep(0.0 if bench.quick else SETTLE_SECONDS)
    requests, seconds = server.put_priced() - all_before, time.monotonic() - began_s
    known, archived = _by_purpose(broker, server, store), _archived_share(broker, names)
    broker.stop()
    merges = known.pop("merges") - known_before.pop("merges")
    by_purpose = {name: known[name] - known_before[name] for name in known}
    return Priced(load, seconds, requests, by_purpose, merges, archived)


def _load(bench: Bench, broker: TidelogBroker, shape: Shape) -> LoadResult:
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    out = run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", "t", "--topics", shape.topics, "--partitions", shape.partitions),
        *("--payload", bench.payload("events"), "--batch", REQUEST_RECORDS, "--connections", CONNECTIONS),
        *("--rate", REQUESTS_PER_S, "--records", round(REQUESTS_PER_S * REQUEST_RECORDS * seconds)),
        seconds_max=4 * seconds + 60,
    )
    return LoadResult.from_output(out)


def _by_purpose(broker: TidelogBroker, server: Minio, store: str) -> dict[str, int]:
    """The requests at the price of a PUT so far: by the broker's counters, and segments by the versions that list them.
    The versions come first, so a segment that is written meanwhile is among the others."""
    written: dict[str, int] = json.loads(
        run_module("benchmarks.loads.segment_puts", "--store", store, env=server.env).strip().splitlines()[-1]
    )
    counted = broker.put_priced()
    log, manifest = (counted.pop(kind, 0) for kind in ("wal", "manifest"))
    others = sum(counted.values()) - written["archive"] - written["merge"]
    return {"log": log, **written, "floor and manifest": manifest, "others": others}


def _archived_share(broker: TidelogBroker, topics: Sequence[str]) -> float:
    """The share of the records that is in segments."""
    parts = [part for name in topics for part in broker.topic(name).partitions]
    return sum(part.cold_end for part in parts) / max(1, sum(part.high_watermark for part in parts))
