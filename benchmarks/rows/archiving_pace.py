"""Whether the archiver keeps up with the smallest entries. Producers send one record per request; the row compares the
entries that are archived with those that are written. If the archiver did not keep up, the log would grow without end.

The broker commits entries as fast as the store takes them (`flush.interval.ms` 0) and archives twice a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.processes import run_module
from benchmarks.tidelog_broker import JSON_CLIENT, TidelogBroker

SECONDS, QUICK_SECONDS = 20.0, 3.0
SETTLED = 0.25
"""The share of samples that is ignored at the beginning."""
CONNECTIONS, PARTITIONS = 32, 16
SAMPLE_EVERY_S = 0.1
SETTINGS = {"flush.interval.ms": 0, "archiver.interval.ms": 500}
GOAL = Goal("at least 0.9 x the entries written", 0.9)
WHAT = f"entries archived a second, while {CONNECTIONS} connections write a record a request"

ARCHIVER = "none: the archiver of the broker"


@dataclass(frozen=True)
class Sample:
    """Entries written and archived in all shards at one moment."""

    at_s: float
    written: int
    archived: int


def rows(bench: Bench) -> list[Row]:
    """Two rows: on a local store and on MinIO."""
    local = f"file:{bench.fresh_folder('archiving-pace-local') / 'tidelog'}"
    found = [_row(bench, "archiving-pace-local", "local store with fsync", local, {})]
    if why := minio.missing():
        return [*found, not_run("archiving-pace-minio", f"{WHAT}, MinIO", GOAL, why)]
    server = minio.Minio(bench.children, bench.fresh_folder("archiving-pace-minio"))
    found.append(_row(bench, "archiving-pace-minio", "MinIO", f"s3://{minio.BUCKET}/pace", server.env))
    server.stop()
    return found


def _row(bench: Bench, name: str, where: str, store: str, env: Mapping[str, str]) -> Row:
    broker = TidelogBroker(bench.children, store, SETTINGS, env)
    broker.create_topic("t", PARTITIONS)
    rounds = [_samples(bench, broker) for _ in range(bench.rounds)]
    broker.stop()
    debt = max(sample.written - sample.archived for one in rounds for sample in one)
    facts = [f"{debt:,} entries not archived at most"]
    written = Side("written", JSON_CLIENT, "entries/s", [rate(one, lambda s: s.written) for one in rounds])
    archived = Side("archived", ARCHIVER, "entries/s", [rate(one, lambda s: s.archived) for one in rounds], facts)
    return Row(name, f"{WHAT}, {where}", GOAL, archived.median / written.median, [archived, written])


def _samples(bench: Bench, broker: TidelogBroker) -> list[Sample]:
    """The broker's counts during a load, without the first part, and at its end."""
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(_load, bench, broker, QUICK_SECONDS if bench.quick else SECONDS)
        found = [_sample(broker)]
        while not loading.done():
            time.sleep(SAMPLE_EVERY_S)
            found.append(_sample(broker))
        loading.result()
    return found[int(SETTLED * len(found)) :]


def _sample(broker: TidelogBroker) -> Sample:
    shards = broker.cluster().shards
    return Sample(time.monotonic(), sum(shard.wal_next for shard in shards), sum(shard.wal_floor for shard in shards))


def _load(bench: Bench, broker: TidelogBroker, seconds: float) -> LoadResult:
    return LoadResult.from_output(
        run_module(
            "benchmarks.loads.prebuilt",
            *("--port", broker.port, "--format", "json", "--payload", bench.payload("events")),
            *("--partitions", PARTITIONS, "--connections", CONNECTIONS, "--batch", 1),
            *("--seconds", seconds, "--records", 10_000_000),
        )
    )


def rate(samples: list[Sample], count: Callable[[Sample], int]) -> float:
    """Entries per second, from the first sample to the last."""
    first, last = samples[0], samples[-1]
    return (count(last) - count(first)) / (last.at_s - first.at_s)
