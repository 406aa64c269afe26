"""Resident memory of a broker: idle, and at its peak under a load that fills its buffer."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side
from benchmarks.processes import run_module
from benchmarks.tidelog_broker import TidelogBroker
from tidelog.services.settings.settings import MIB, Settings

IDLE_SECONDS = 3.0
LOADS = (("events", 2_000_000, 20_000), ("letters", 600_000, 8_000))
CONNECTIONS = 24
BUFFER_MIB = Settings().buffer_max_bytes // MIB
IDLE_GOAL = Goal("at most 150 MiB", 150, at_least=False)
LOAD_GOAL = Goal(f"at most buffer.max.bytes ({BUFFER_MIB} MiB) + 500 MiB", BUFFER_MIB + 500, at_least=False)


def rows(bench: Bench) -> list[Row]:
    """Two rows, each with one side; the figure is MiB."""
    if not sys.platform.startswith("linux"):
        raise NotImplementedError("the peak is read from /proc")
    folder = bench.fresh_folder("memory")
    idle, peak, facts = [], [], []
    for turn in range(bench.rounds):
        broker = TidelogBroker(bench.children, f"file:{folder / str(turn)}")
        time.sleep(IDLE_SECONDS)
        idle.append(broker.process.rss_bytes() / MIB)
        facts = _full_load(bench, broker)
        peak.append(peak_mib(broker.process.pid))
        broker.stop()
    client = "two load programs of 24 connections with Arrow bodies of 8 MB, and a reader from the start"
    return [
        Row("memory-idle", "memory of an idle broker", IDLE_GOAL, max(idle), [Side("Tidelog", "none", "MiB", idle)]),
        Row(
            "memory-full",
            "peak memory at full load",
            LOAD_GOAL,
            max(peak),
            [Side("Tidelog", client, "MiB", peak, facts)],
        ),
    ]


def _full_load(bench: Bench, broker: TidelogBroker) -> list[str]:
    for kind, _, _ in LOADS:
        broker.create_topic(kind)
    with ThreadPoolExecutor(len(LOADS) + 1) as pool:
        running = [pool.submit(_produce, bench, broker, *load) for load in LOADS]
        kind, records, _ = LOADS[0]
        running.append(pool.submit(_follow, broker, kind, bench.scaled(records)))
        results = [LoadResult.from_output(one.result()) for one in running]
    return [f"{one.mb_per_s:.0f} MB/s, {one.refused} times refused for a full buffer" for one in results[:-1]]


def _produce(bench: Bench, broker: TidelogBroker, kind: str, records: int, batch: int) -> str:
    return run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", kind, "--payload", bench.payload(kind), "--batch", batch),
        *("--connections", CONNECTIONS, "--records", max(bench.scaled(records), 4 * batch)),
    )


def _follow(broker: TidelogBroker, topic: str, records: int) -> str:
    arguments = ("--port", broker.port, "--topic", topic, "--end", records, "--wait-ms", 1000)
    return run_module("benchmarks.loads.fetch_arrow", *arguments)


def peak_mib(pid: int) -> float:
    """VmHWM: the highest resident size since the process began."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024
