"""Run the same load on s2 lite and on Tidelog, both on one MinIO, in a network namespace that has only loopback.

One stream (one partition), 32 producers of 100 x 1 KiB with one request each in flight, and a reader at the tail.
Prints a JSON object: the figures of each setting of each side in each round.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import minio, s2_lite
from benchmarks.loads.result import LoadResult
from benchmarks.processes import Children, run_module
from benchmarks.tidelog_broker import TidelogBroker

PRODUCERS, BATCH = 32, 100
S2_FLUSH_MS = (50, 20, 5)


@dataclass(frozen=True)
class Trial:
    """One setting of one side in one round. `puts_per_s`: all PUTs at MinIO divided by the seconds of the load, without
    the time that its process took to start."""

    mb_per_s: float
    p50_ms: float
    p99_ms: float
    puts_per_s: float
    tail_records: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--payload", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, float]]] = {}
    with Children(options.scratch) as children:
        for _ in range(options.rounds):
            for name, trial in _round(children, options):
                found.setdefault(name, []).append(asdict(trial))
    print(json.dumps(found))


def _round(children: Children, options: argparse.Namespace) -> list[tuple[str, Trial]]:
    """Run every setting once. Tidelog runs at its own pace and again at the PUT rate of s2's default setting."""
    trials = [(f"s2 {flush_ms} ms", _s2(children, options, flush_ms)) for flush_ms in S2_FLUSH_MS]
    equal_ms = max(1, round(1000 / trials[0][1].puts_per_s))
    trials.append(("tidelog", _tidelog(children, options, None)))
    trials.append(("tidelog, no interval", _tidelog(children, options, 0)))
    trials.append(("tidelog, equal PUTs", _tidelog(children, options, equal_ms)))
    return trials


def _s2(children: Children, options: argparse.Namespace, flush_ms: int) -> Trial:
    folder = Path(tempfile.mkdtemp(dir=options.scratch))
    server = minio.Minio(children, folder)
    lite = s2_lite.S2Lite(children, server, folder, flush_ms)
    trial = _measure(
        server,
        lambda records: _appends(lite.port, "s2", options, records),
        lambda records: run_module("benchmarks.loads.s2_tail", "--port", lite.port, "--end", records),
        options.records,
    )
    lite.stop()
    server.stop()
    return trial


def _tidelog(children: Children, options: argparse.Namespace, flush_ms: int | None) -> Trial:
    folder = Path(tempfile.mkdtemp(dir=options.scratch))
    server = minio.Minio(children, folder)
    settings = {} if flush_ms is None else {"flush.interval.ms": flush_ms}
    broker = TidelogBroker(children, f"s3://{minio.BUCKET}/tidelog", settings, server.env)
    broker.create_topic("t")
    trial = _measure(
        server,
        lambda records: _appends(broker.port, "arrow", options, records),
        lambda records: run_module(
            "benchmarks.loads.fetch_arrow",
            *("--port", broker.port, "--topic", "t", "--end", records, "--wait-ms", 1000),
        ),
        options.records,
    )
    broker.stop()
    server.stop()
    return trial


def _appends(port: int, form: str, options: argparse.Namespace, records: int) -> str:
    return run_module(
        "benchmarks.loads.prebuilt",
        *("--port", port, "--format", form, "--payload", options.payload),
        *("--connections", PRODUCERS, "--batch", BATCH, "--records", records),
    )


def _measure(server: minio.Minio, append: Callable[[int], str], follow: Callable[[int], str], records: int) -> Trial:
    """Run the appends, with a reader of the tail in parallel."""
    tails: list[LoadResult] = []
    reader = threading.Thread(target=lambda: tails.append(LoadResult.from_output(follow(records))))
    before = server.puts()
    reader.start()
    load = LoadResult.from_output(append(records))
    puts = server.puts() - before
    reader.join()
    return Trial(load.mb_per_s, load.p50_ms, load.p99_ms, puts / load.seconds, tails[0].records)


if __name__ == "__main__":
    main()
