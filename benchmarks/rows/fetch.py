"""Fetches the newest records as Arrow, beside kafka-consumer-perf-test. Both sides answer from memory.

Tidelog reads from its cache of recent batches, Kafka from the page cache. Both read the same records once, from the
first offset to the last, over one connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.processes import alone, run_module
from benchmarks.rows.produce import load_facts, prebuilt
from benchmarks.tidelog_broker import FETCH_CLIENT, TidelogBroker

RECORDS = 1_000_000
CACHE_MIB = 1024  # all records stay in memory
GOAL = Goal("1.5 x Kafka's MB/s", 1.5)
NAME, WHAT = "fetch-arrow-hot", "fetch JSON events of 376 bytes, Arrow, hot"


def rows(bench: Bench) -> list[Row]:
    if why := kafka.missing():
        return [not_run(NAME, WHAT, GOAL, why)]
    folder = bench.fresh_folder("fetch")
    theirs = kafka.KafkaBroker(bench.children, folder)
    settings = {"cache.max.bytes": CACHE_MIB << 20, "archiver.min.bytes": 1 << 40, "archiver.interval.ms": 86_400_000}
    ours = TidelogBroker(bench.children, f"file:{folder / 'tidelog'}", settings)
    records = bench.scaled(RECORDS)
    theirs.create_topic("t")
    ours.create_topic("t")
    theirs.produce("t", bench.payload("events"), records)
    prebuilt(bench, ours, "events", 2_500, records, "t")
    sides: dict[str, Callable[[], Any]] = {
        "kafka": lambda: alone(theirs.process, ours.process, lambda: theirs.consume("t", records))[0],
        "tidelog": lambda: alone(ours.process, theirs.process, lambda: _fetch(ours, records))[0],
    }
    for run in sides.values():
        run()
    found = interleave(bench.rounds, sides)
    ours.stop()
    theirs.stop()
    kafka_side = Side("Kafka", kafka.CONSUMER, "MB/s", found["kafka"])
    side = Side(
        "Tidelog", FETCH_CLIENT, "MB/s", [one.mb_per_s for one in found["tidelog"]], load_facts(found["tidelog"])
    )
    return [compare(NAME, WHAT, GOAL, side, kafka_side)]


def _fetch(broker: TidelogBroker, records: int) -> LoadResult:
    out = run_module("benchmarks.loads.fetch_arrow", "--port", broker.port, "--topic", "t", "--end", records)
    return LoadResult.from_output(out)
