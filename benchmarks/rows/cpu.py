"""The broker's CPU seconds for a GB of raw events, by step: commit, archive, merge. `steady-state-cpu` has them all.

Commit and archive are measured on brokers: one that never archives, and one that archives everything. Their difference
is the archive's cost, with the reads, writes and syncs of the local store. The merge runs in one process, because a
broker puts it off until it is idle: it costs most and nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.loads.archiving import Speed
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, interleave
from benchmarks.processes import Failed, run_module
from benchmarks.rows.archiving import NEVER, OURS
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import ARROW_CLIENT, TidelogBroker

RECORDS, WARM_RECORDS, MERGED_RECORDS = 4_000_000, 500_000, 1_000_000
PARTITIONS, BATCH = 4, 5_000
ARCHIVED_WITHIN_S = 120.0
UNIT = "CPU s/GB"
WHAT = "CPU seconds for a GB of JSON events of 376 bytes"
COMMIT_GOAL = Goal("at most 3", 3.0, at_least=False)
ARCHIVE_GOAL = Goal("at most 0.6", 0.6, at_least=False)
MERGE_GOAL = Goal("at most 13, what zstd 8 takes: it runs when the broker is idle", 13.0, at_least=False)
ARCHIVING = {"archiver.interval.ms": 500, "archiver.upkeep": "false"}


def rows(bench: Bench) -> list[Row]:
    """Three rows: commit, archive, merge."""
    sides: dict[str, Callable[[], float]] = {
        "commit": lambda: _cpu_s_per_gb(bench, NEVER, archived=False),
        "archive": lambda: _cpu_s_per_gb(bench, ARCHIVING, archived=True),
    }
    found = interleave(bench.rounds, sides)
    commit = Side("Tidelog", ARROW_CLIENT, UNIT, found["commit"])
    beside = [f"with the commit {cpu_s:.2f}" for cpu_s in found["archive"]]
    extra = [both - alone for both, alone in zip(found["archive"], found["commit"], strict=True)]
    archive = Side("Tidelog", ARROW_CLIENT, UNIT, extra, beside)
    return [
        Row("cpu-commit", f"{WHAT}: commit", COMMIT_GOAL, commit.median, [commit]),
        Row("cpu-archive", f"{WHAT}: archive", ARCHIVE_GOAL, archive.median, [archive]),
        _merge(bench),
    ]


def _cpu_s_per_gb(bench: Bench, settings: dict[str, object], *, archived: bool) -> float:
    """Of a warm broker, from before the load until after it, or until all of it is archived."""
    broker = TidelogBroker(bench.children, f"file:{bench.fresh_folder('cpu') / 'tidelog'}", settings)
    broker.create_topic("t", PARTITIONS)

    def load(records: int) -> LoadResult:
        result = prebuilt(bench, broker, "events", BATCH, records, "t", PARTITIONS)
        if archived:
            _wait_until_archived(broker)
        return result

    load(bench.scaled(WARM_RECORDS))
    before_s = broker.process.cpu_seconds()
    gb = load(bench.scaled(RECORDS)).gb
    cpu_s = broker.process.cpu_seconds() - before_s
    broker.stop()
    return cpu_s / gb


def _wait_until_archived(broker: TidelogBroker) -> None:
    give_up_s = time.monotonic() + ARCHIVED_WITHIN_S
    while any(log.high_watermark > log.cold_end for log in (broker.log("t", number) for number in range(PARTITIONS))):
        if time.monotonic() > give_up_s:
            raise Failed(f"the broker has not archived everything {ARCHIVED_WITHIN_S:.0f} s after the load")
        time.sleep(0.5)


def _merge(bench: Bench) -> Row:
    load = ("--payload", bench.payload("events"), "--records", bench.scaled(MERGED_RECORDS), "--rounds", 1)
    found = Speed.from_output(run_module("benchmarks.loads.archiving", *load))
    side = Side("Tidelog", OURS, UNIT, [found.merge_cpu_s / (found.raw_bytes / 1e9)])
    return Row("cpu-merge", f"{WHAT}: merge into final segments", MERGE_GOAL, side.median, [side])
