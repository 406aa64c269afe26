"""Produces JSON bodies of 100 records of 1 KiB, like REST clients, beside Kafka's native protocol.

The same load over Kafka's REST proxy (Karapace) reached 11 MB/s on this kind of machine, with 32 connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.processes import alone, run_module
from benchmarks.rows.produce import load_facts
from benchmarks.tidelog_broker import JSON_CLIENT, TidelogBroker

RECORDS = 600_000
BATCH, CONNECTIONS, RECORD_MB = 100, 32, 1024 / 1e6
GOAL = Goal("0.5 x Kafka's native MB/s", 0.5)
NAME, WHAT = "produce-json", "produce JSON bodies of 100 records of 1 KiB, acks=all, local store with fsync"


def rows(bench: Bench) -> list[Row]:
    """Two rows: values as JSON text, and as base64."""
    if why := kafka.missing():
        return [not_run(NAME, WHAT, GOAL, why)]
    folder = bench.fresh_folder("json")
    theirs = kafka.KafkaBroker(bench.children, folder)
    ours = TidelogBroker(bench.children, f"file:{folder / 'tidelog'}")
    records = bench.scaled(RECORDS)
    for topic in ("t", "json", "base64"):
        theirs.create_topic(topic) if topic == "t" else ours.create_topic(topic)

    def on_tidelog(form: str) -> LoadResult:
        return alone(ours.process, theirs.process, lambda: _json(bench, ours, form, records))[0]

    letters = bench.payload("letters")
    sides: dict[str, Callable[[], Any]] = {
        "kafka": lambda: alone(theirs.process, ours.process, lambda: theirs.produce("t", letters, records))[0],
        "json": lambda: on_tidelog("json"),
        "base64": lambda: on_tidelog("base64"),
    }
    for run in sides.values():
        run()
    found = interleave(bench.rounds, sides)
    ours.stop()
    theirs.stop()
    kafka_side = Side("Kafka", kafka.CLIENT, "MB/s", [one.records_per_s * RECORD_MB for one in found["kafka"]])
    made = []
    for form, name in (("json", NAME), ("base64", "produce-json-base64")):
        samples = [one.mb_per_s for one in found[form]]
        side = Side("Tidelog", f"{JSON_CLIENT}; values as {form}", "MB/s", samples, load_facts(found[form]))
        made.append(compare(name, f"{WHAT}; values as {form}", GOAL, side, kafka_side))
    return made


def _json(bench: Bench, broker: TidelogBroker, form: str, records: int) -> LoadResult:
    out = run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", form, "--format", form, "--payload", bench.payload("letters")),
        *("--connections", CONNECTIONS, "--batch", BATCH, "--records", records),
    )
    return LoadResult.from_output(out)
