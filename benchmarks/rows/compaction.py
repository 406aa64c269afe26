"""Log compaction by key: ten records per key, of which one stays, on the local disk in one thread.

One process writes the segments and another compacts them in one pass, so that memory is measured separately. The spill
files, for data beyond `archiver.memory.bytes`, are on the same disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.loads.compaction import Compaction
from benchmarks.measure import Goal, Row, Side
from benchmarks.processes import Failed, run_module
from tidelog.services.settings.settings import MIB

RECORDS, KEYS = 10_000_000, 1_000_000
SPEED_GOAL = Goal("at least 1 M records/s", 1.0)
MEMORY_GOAL = Goal("at most 1 GiB", 1024, at_least=False)
WHAT = "log compaction of 10 M records of 1 M keys, 116 bytes each"
CLIENT = "none: one pass of CompactTask in one thread, with the default of memory"


def rows(bench: Bench) -> list[Row]:
    """Two rows of one side: millions of records a second, and MiB."""
    folder = bench.fresh_folder("compaction")
    load = ("--payload", bench.payload("hundred"), "--records", bench.scaled(RECORDS), "--keys", bench.scaled(KEYS))
    run_module("benchmarks.loads.compaction", "--write", "--folder", folder / "written", *load)
    passes = [_pass(folder, turn, load) for turn in range(bench.rounds)]
    facts = [f"{one.cpu_seconds:.1f} s of CPU, {one.kept:,} records stay" for one in passes[-1:]]
    speed = Side("Tidelog", CLIENT, "M/s", [one.records / one.seconds / 1e6 for one in passes], facts)
    memory = Side("Tidelog", CLIENT, "MiB", [one.peak_bytes / MIB for one in passes])
    return [
        Row("compaction", WHAT, SPEED_GOAL, speed.median, [speed]),
        Row("compaction-memory", f"peak memory of {WHAT}", MEMORY_GOAL, memory.high, [memory]),
    ]


def _pass(folder: Path, turn: int, load: tuple[object, ...]) -> Compaction:
    """Run one pass over a copy of the written segments."""
    place = folder / str(turn)
    shutil.copytree(folder / "written", place)
    done = Compaction.from_output(run_module("benchmarks.loads.compaction", "--compact", "--folder", place, *load))
    shutil.rmtree(place)
    if not 0 < done.kept < done.records:
        raise Failed(f"of {done.records:,} records {done.kept:,} stay")
    return done
