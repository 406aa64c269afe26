"""The cost of archiving: CPU per MB of raw records, beside pyarrow with the same work; how often a record is written;
and its effect on producers."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.loads.archiving import SlowLife, Speed
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave
from benchmarks.processes import run_module
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import ARROW_CLIENT, TidelogBroker

RECORDS, SLOW_RECORDS = 1_000_000, 100_000
SPEED_GOAL = Goal("at least 150 MB/s of raw records per core", 150)
CPU_GOAL = Goal("1.3 x the CPU of pyarrow reading and writing the same Parquet", 1.3, at_least=False)
WRITES_GOAL = Goal("at most 3", 3, at_least=False)
WHAT = "archiving JSON events of 376 bytes, one partition, 128 MiB a pass"
OURS = "none: Archiver over a bucket in memory, one thread"
THEIRS = "pyarrow.parquet: read_table of the log's entries, write_table of as large segments, zstd 3"

BACKLOG = 4_000_000
LOAD_SECONDS, RATE, BATCH = 20.0, 50, 100
ROUNDS_FACTOR = 2
"""The p99 of a broker is about the tenth longest of a thousand requests, so it takes more rounds than other figures."""
P99_GOAL = Goal("1.2 x the p99 without it", 1.2, at_least=False)
NEVER = {"archiver.interval.ms": 86_400_000, "archiver.min.bytes": 1 << 40, "archiver.upkeep": "false"}


def rows(bench: Bench) -> list[Row]:
    """Four rows: MB/s per core, CPU beside pyarrow's, write amplification, produce p99."""
    return [*_speed(bench), _writes(bench), _produce(bench)]


def _speed(bench: Bench) -> list[Row]:
    load = ("--payload", bench.payload("events"), "--records", bench.scaled(RECORDS), "--rounds", bench.rounds)
    found = Speed.from_output(run_module("benchmarks.loads.archiving", *load))
    raw_mb = found.raw_bytes / 1e6
    facts = [
        f"merging into a final segment: {raw_mb / found.merge_cpu_s:.0f} MB/s" if found.merge_cpu_s > 0.01 else "",
        f"stored: {found.archived_stored_bytes / found.raw_bytes:.3f} of the values' bytes, merged "
        f"{found.merged_stored_bytes / found.raw_bytes:.3f}",
    ]
    per_core = Side("Tidelog", OURS, "MB/s", [raw_mb / cpu_s for cpu_s in found.archive_cpu_s], [f for f in facts if f])
    ours = Side("Tidelog", OURS, "s of CPU", found.archive_cpu_s)
    theirs = Side("pyarrow", THEIRS, "s of CPU", found.pyarrow_cpu_s)
    return [
        Row("archiving-speed", WHAT, SPEED_GOAL, per_core.median, [per_core]),
        compare("archiving-cpu", f"CPU of {WHAT}", CPU_GOAL, ours, theirs),
    ]


def _writes(bench: Bench) -> Row:
    load = ("--payload", bench.payload("events"), "--records", bench.scaled(SLOW_RECORDS), "--slow-life")
    found = SlowLife.from_output(run_module("benchmarks.loads.archiving", *load))
    facts = [f"{found.final_segments} final segments, {found.small_segments} smaller ones at most"]
    side = Side("Tidelog", OURS.replace("Archiver", "Archiver and MergeTask"), "times", [_times(found)], facts)
    what = f"how often a record is written, {found.passes:,} passes of 100 JSON events, segment.bytes of 2 MiB"
    return Row("archiving-writes", what, WRITES_GOAL, side.median, [side])


def _times(found: SlowLife) -> float:
    return found.written_bytes / found.raw_bytes


def _produce(bench: Bench) -> Row:
    """Measure two brokers in turn with the same backlog in the log and the same steady producers. One broker archives
    and merges the backlog as fast as it can; the other does not."""
    always = {"archiver.interval.ms": 500}  # archive by age: while the log is small, archiving yields to requests
    sides: dict[str, Callable[[], LoadResult]] = {
        "with": lambda: _load(bench, "with", always),
        "without": lambda: _load(bench, "without", NEVER),
    }
    found = interleave(ROUNDS_FACTOR * bench.rounds, sides)
    with_it, without = (
        Side(f"{name} archiving", ARROW_CLIENT, "ms", [one.p99_ms for one in found[name]], [f"p50 {_p50(found[name])}"])
        for name in ("with", "without")
    )
    what = f"produce p99, {RATE} requests/s of {BATCH} events, while a backlog is archived and merged at full rate"
    return compare("archiving-produce-p99", what, P99_GOAL, with_it, without)


def _load(bench: Bench, name: str, settings: dict[str, object]) -> LoadResult:
    folder = bench.fresh_folder(f"archiving-{name}")
    store = f"file:{folder / 'tidelog'}"
    filling = TidelogBroker(bench.children, store, NEVER)
    filling.create_topic("t", configs={"segment.ms": 1_000})
    filling.create_topic("p99")
    prebuilt(bench, filling, "events", 5_000, bench.scaled(BACKLOG), "t")
    filling.stop()
    broker = TidelogBroker(bench.children, store, settings)
    result = LoadResult.from_output(
        run_module(
            "benchmarks.loads.prebuilt",
            *("--port", broker.port, "--topic", "p99", "--format", "arrow", "--payload", bench.payload("events")),
            *("--connections", 8, "--batch", BATCH, "--rate", RATE),
            *("--seconds", LOAD_SECONDS, "--records", int(LOAD_SECONDS * RATE * BATCH)),
        )
    )
    broker.stop()
    return result


def _p50(results: list[LoadResult]) -> str:
    return f"{results[-1].p50_ms:.1f} ms"
