"""PUTs per second of the WAL with 1, 100 and 10,000 partitions under the same load.

The broker has one shard here, because PUTs depend on shards and load, and a single partition uses only one shard.
"""

from __future__ import annotations

from functools import partial

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, interleave
from benchmarks.processes import run_module
from benchmarks.tidelog_broker import TidelogBroker

PARTITIONS = (1, 100, 10_000)
REQUESTS_PER_S, REQUEST_RECORDS, CONNECTIONS = 200, 10, 64
SECONDS = 10
FLUSH_MS = 250
NAME = "puts-by-partitions"
WHAT = "PUT/s of the log with 1, 100 and 10,000 partitions under the same load"
GOAL = Goal("the highest at most 1.1 x the lowest", 1.1, at_least=False)
CLIENT = f"{REQUESTS_PER_S} Arrow requests/s of {REQUEST_RECORDS} x 1 KiB, spread over the partitions"


def rows(bench: Bench) -> list[Row]:
    """One row with a side for each number of partitions. Its figure is the highest PUT/s divided by the lowest."""
    folder = bench.fresh_folder("puts")
    server = None if minio.missing() else minio.Minio(bench.children, folder)
    store = f"s3://{minio.BUCKET}/puts" if server else f"file:{folder / 'tidelog'}"
    broker = TidelogBroker(
        bench.children,
        store,
        {"shards": 1, "flush.interval.ms": FLUSH_MS, "archiver.interval.ms": 86_400_000},
        server.env if server else {},
    )
    for partitions in PARTITIONS:
        broker.create_topic(f"p{partitions}", partitions)
    found = interleave(bench.rounds, {str(n): partial(_puts_per_s, bench, broker, n) for n in PARTITIONS})
    broker.stop()
    if server:
        server.stop()
    where = "on MinIO" if server else f"local store, flush.interval.ms={FLUSH_MS}"
    sides = [Side(f"{n} partitions", CLIENT, "PUT/s", found[str(n)]) for n in PARTITIONS]
    medians = [side.median for side in sides]
    return [Row(NAME, f"{WHAT}, {where}", GOAL, max(medians) / min(medians), sides)]


def _puts_per_s(bench: Bench, broker: TidelogBroker, partitions: int) -> float:
    before = broker.wal_entries()
    seconds = max(3, bench.scaled(SECONDS))
    out = run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", f"p{partitions}", "--partitions", partitions),
        *("--payload", bench.payload("letters"), "--batch", REQUEST_RECORDS, "--connections", CONNECTIONS),
        *("--rate", REQUESTS_PER_S, "--records", REQUESTS_PER_S * REQUEST_RECORDS * seconds),
    )
    return (broker.wal_entries() - before) / LoadResult.from_output(out).seconds
