"""Produces and consumes through Kafka's REST interface, v2, beside what Karapace reached on this kind of machine.

Karapace was measured once, with its own broker behind it, over 32 connections: 11.2 MB/s of bodies of 100 records of
1 KiB, 2,071 requests of one record a second at acks=1, and 91 (JSON) and 105 MB/s (binary) of pages of 1 MiB, with
records left out. Here every load is counted against the log: a run whose counts differ fails.
"""

from __future__ import annotations

from itertools import count

from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, interleave
from benchmarks.processes import run_module
from benchmarks.rows.produce import load_facts
from benchmarks.tidelog_broker import TidelogBroker

RECORDS, BATCH, CONNECTIONS = 500_000, 100, 32
SINGLE_RECORDS = 50_000
LETTERS_BYTES = 1024
CACHE_MIB = 1024  # all records stay in memory
PRODUCE_GOAL = Goal("at least 100 MB/s", 100)
SINGLE_GOAL = Goal("at least 5,000 requests/s", 5_000)
CONSUME_GOAL = Goal("at least 260 MB/s, counted against the log", 260)
PRODUCE_CLIENT = "prebuilt bodies over plain sockets, one thread for all connections"
CONSUME_CLIENT = "one connection; counts the records of each page by a byte search"
KARAPACE = "Karapace, measured once, not in turn"
_groups = count()


def rows(bench: Bench) -> list[Row]:
    """Four rows: produce in batches and one by one, consume as JSON and as binary."""
    folder = bench.fresh_folder("kafka-rest")
    settings = {"cache.max.bytes": CACHE_MIB << 20, "archiver.min.bytes": 1 << 40, "archiver.interval.ms": 86_400_000}
    broker = TidelogBroker(bench.children, f"file:{folder / 'tidelog'}", settings)
    for topic in ("batches", "single"):
        broker.create_topic(topic)
    batches = bench.scaled(RECORDS) // bench.rounds
    sides = {
        "batches": lambda: _produce(bench, broker, "batches", "letters", BATCH, batches),
        "single": lambda: _produce(bench, broker, "single", "hundred", 1, bench.scaled(SINGLE_RECORDS)),
    }
    _produce(bench, broker, "single", "letters", BATCH, 5_000)  # to warm up
    found = interleave(bench.rounds, sides)
    reads = {kind: lambda kind=kind: _consume(broker, kind) for kind in ("json", "binary")}
    for run in reads.values():
        run()
    found |= interleave(bench.rounds, reads)
    broker.stop()
    return [
        _row(
            "rest-produce",
            "REST v2: JSON bodies of 100 records of 1 KiB, acks=all",
            PRODUCE_GOAL,
            found["batches"],
            11.2,
        ),
        _single(found["single"]),
        _row("rest-consume", "REST v2: pages of 1 MiB, JSON, records of 1 KiB", CONSUME_GOAL, found["json"], 91),
        _row("rest-consume-binary", "REST v2: pages of 1 MiB, base64", CONSUME_GOAL, found["binary"], 105),
    ]


def _row(name: str, what: str, goal: Goal, found: list[LoadResult], karapace: float) -> Row:
    client = CONSUME_CLIENT if goal is CONSUME_GOAL else f"{PRODUCE_CLIENT}; {CONNECTIONS} connections"
    ours = Side("Tidelog", client, "MB/s", [one.mb_per_s for one in found], load_facts(found))
    theirs = Side("Karapace", KARAPACE, "MB/s", [karapace])
    return Row(name, f"{what}, local store with fsync", goal, ours.median, [ours, theirs], unit="MB/s")


def _single(found: list[LoadResult]) -> Row:
    client = f"{PRODUCE_CLIENT}; {CONNECTIONS} connections"
    rates = [one.requests / one.seconds for one in found]
    ours = Side("Tidelog", client, "requests/s", rates, load_facts(found))
    theirs = Side("Karapace", f"{KARAPACE}; {CONNECTIONS} connections; acks=1", "requests/s", [2_071])
    what = "REST v2: one JSON record of 100 bytes a request, acks=all, local store with fsync"
    return Row("rest-produce-single", what, SINGLE_GOAL, ours.median, [ours, theirs], unit="requests/s")


def _produce(bench: Bench, broker: TidelogBroker, topic: str, payload: str, batch: int, records: int) -> LoadResult:
    out = run_module(
        "benchmarks.loads.rest_produce",
        *("--port", broker.port, "--topic", topic, "--payload", bench.payload(payload)),
        *("--connections", CONNECTIONS, "--batch", batch, "--records", records),
    )
    return LoadResult.from_output(out)


def _consume(broker: TidelogBroker, kind: str) -> LoadResult:
    out = run_module(
        "benchmarks.loads.rest_consume",
        *("--port", broker.port, "--topic", "batches", "--group", f"load-{next(_groups)}", "--format", kind),
        *("--value-bytes", LETTERS_BYTES),
    )
    return LoadResult.from_output(out)
