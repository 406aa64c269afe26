"""The broker's CPU seconds for a GB of raw events, by step: commit, archive, merge. `steady-state-cpu` has them all.

The commit is measured on a broker that never archives. Archive and merge run in one process each. The archive works on
a bucket in a local directory and counts reads, writes and syncs; its figure is the best round, because other work on
the machine can only add to it. The difference of two brokers, one of which archives, had twice the figure itself as
its spread. A broker puts the merge off until it is idle: it costs most and nobody waits for it.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.loads.archiving import LocalSpeed, Speed
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side
from benchmarks.processes import run_module
from benchmarks.rows.archiving import NEVER, OURS
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import ARROW_CLIENT, TidelogBroker

RECORDS, WARM_RECORDS, ARCHIVED_RECORDS, MERGED_RECORDS = 4_000_000, 500_000, 2_000_000, 1_000_000
PARTITIONS, BATCH, ARCHIVE_ROUNDS = 4, 5_000, 7
UNIT = "CPU s/GB"
WHAT = "CPU seconds for a GB of JSON events of 376 bytes"
COMMIT_GOAL = Goal("at most 3", 3.0, at_least=False)
ARCHIVE_GOAL = Goal("at most 0.6", 0.6, at_least=False)
MERGE_GOAL = Goal("at most 17, what zstd 10 takes: it runs when the broker is idle", 17.0, at_least=False)
LOCAL = "none: Archiver over a bucket in a local directory, one thread"


def rows(bench: Bench) -> list[Row]:
    """Three rows: commit, archive, merge."""
    commit = Side("Tidelog", ARROW_CLIENT, UNIT, [_commit_cpu_s_per_gb(bench) for _ in range(bench.rounds)])
    return [
        Row("cpu-commit", f"{WHAT}: commit", COMMIT_GOAL, commit.median, [commit]),
        _archive(bench),
        _merge(bench),
    ]


def _commit_cpu_s_per_gb(bench: Bench) -> float:
    """Of a warm broker, from before the load until after it."""
    broker = TidelogBroker(bench.children, f"file:{bench.fresh_folder('cpu') / 'tidelog'}", NEVER)
    broker.create_topic("t", PARTITIONS)

    def load(records: int) -> LoadResult:
        return prebuilt(bench, broker, "events", BATCH, records, "t", PARTITIONS)

    load(bench.scaled(WARM_RECORDS))
    before_s = broker.process.cpu_seconds()
    gb = load(bench.scaled(RECORDS)).gb
    cpu_s = broker.process.cpu_seconds() - before_s
    broker.stop()
    return cpu_s / gb


def _archive(bench: Bench) -> Row:
    folder = bench.fresh_folder("cpu-archive")
    load = ("--payload", bench.payload("events"), "--records", bench.scaled(ARCHIVED_RECORDS))
    found = LocalSpeed.from_output(
        run_module("benchmarks.loads.archiving", *load, "--rounds", ARCHIVE_ROUNDS, "--local", folder)
    )
    samples = [cpu_s / (found.raw_bytes / 1e9) for cpu_s in found.archive_cpu_s]
    side = Side("Tidelog", LOCAL, UNIT, samples)
    return Row("cpu-archive", f"{WHAT}: archive, best round", ARCHIVE_GOAL, side.low, [side])


def _merge(bench: Bench) -> Row:
    load = ("--payload", bench.payload("events"), "--records", bench.scaled(MERGED_RECORDS), "--rounds", 1)
    found = Speed.from_output(run_module("benchmarks.loads.archiving", *load))
    side = Side("Tidelog", OURS, UNIT, [found.merge_cpu_s / (found.raw_bytes / 1e9)])
    return Row("cpu-merge", f"{WHAT}: merge into final segments", MERGE_GOAL, side.median, [side])
