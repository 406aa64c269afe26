"""Produce with acks=all on the local disk: Arrow bodies against kafka-producer-perf-test, over the same records.

A topic of four partitions on each side. Tidelog syncs every commit to the disk before it answers; Kafka, as it comes,
answers from the page cache. Two loads of ours: bodies that were built before the clock starts, and `Producer.send`,
which like Kafka's client is called once a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.processes import run_module
from benchmarks.tidelog_broker import ARROW_CLIENT, BATCHED_CLIENT, TidelogBroker

CONNECTIONS, PARTITIONS = 16, 4


@dataclass(frozen=True)
class Payload:
    """`records` in a full round (Kafka's client needs some seconds to warm up); `batch`: records of one Arrow body."""

    kind: str
    title: str
    records: int
    batch: int
    goal: float


PAYLOADS = (
    Payload("events", "JSON events of 376 bytes", 3_000_000, 5_000, 2.0),
    Payload("letters", "1 KiB of random letters", 1_000_000, 2_000, 1.5),
    Payload("hundred", "100 bytes", 6_000_000, 20_000, 2.0),
)
BATCHED_GOAL = Goal("1.3 x Kafka's records/s, records batched by the load program", 1.3)


def rows(bench: Bench) -> list[Row]:
    """Six rows: two loads for each of three payloads; the goal of the second load is for JSON events."""
    if why := kafka.missing():
        return [not_run(name, what, goal, why) for name, what, goal in _all_names()]
    return [row for payload in PAYLOADS for row in _compare(bench, payload)]


def _compare(bench: Bench, payload: Payload) -> list[Row]:
    folder = bench.fresh_folder(f"produce-{payload.kind}")
    theirs = kafka.KafkaBroker(bench.children, folder)
    ours = TidelogBroker(bench.children, f"file:{folder / 'tidelog'}")
    theirs.create_topic("t", PARTITIONS)
    ours.create_topic("prebuilt", PARTITIONS)
    ours.create_topic("batched", PARTITIONS)
    records = bench.scaled(payload.records)
    sides: dict[str, Callable[[], kafka.KafkaProduced | LoadResult]] = {
        "kafka": lambda: theirs.produce("t", bench.payload(payload.kind), records),
        "prebuilt": lambda: prebuilt(bench, ours, payload.kind, payload.batch, records, "prebuilt", PARTITIONS),
        "batched": lambda: batched(bench, ours, payload.kind, records, "batched"),
    }
    for run in sides.values():
        run()  # a round for warming up: Kafka's broker is compiled, all files exist
    found = interleave(bench.rounds, sides)
    ours.stop()
    theirs.stop()
    kafka_side = Side(
        "Kafka", kafka.CLIENT, "records/s", [one.records_per_s for one in found["kafka"]], _kafka_facts(found["kafka"])
    )
    names = {name: (what, goal) for name, what, goal in _all_names()}
    made = []
    for load, client in (("prebuilt", ARROW_CLIENT), ("batched", BATCHED_CLIENT)):
        name = f"produce-{payload.kind}-{load}"
        what, goal = names[name]
        side = Side("Tidelog", client, "records/s", [one.records_per_s for one in found[load]], load_facts(found[load]))
        made.append(compare(name, what, goal, side, kafka_side))
    return made


def prebuilt(
    bench: Bench, broker: TidelogBroker, kind: str, batch: int, records: int, topic: str, partitions: int = 1
) -> LoadResult:
    """Arrow bodies of `batch` records over `CONNECTIONS` connections, to the partitions in turn."""
    out = run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", topic, "--format", "arrow", "--payload", bench.payload(kind)),
        *("--connections", CONNECTIONS, "--batch", batch, "--records", records, "--partitions", partitions),
    )
    return LoadResult.from_output(out)


def batched(bench: Bench, broker: TidelogBroker, kind: str, records: int, topic: str) -> LoadResult:
    """`Producer.send`, a call a record."""
    out = run_module(
        "benchmarks.loads.batched",
        *("--port", broker.port, "--topic", topic, "--payload", bench.payload(kind), "--records", records),
    )
    return LoadResult.from_output(out)


def load_facts(results: list[LoadResult]) -> list[str]:
    """Of the last round: MB/s, latencies, what the load program itself cost."""
    last = results[-1]
    cpu = last.cpu_seconds / last.seconds
    return [
        f"{last.mb_per_s:.0f} MB/s",
        f"request p50 {last.p50_ms:.1f} ms, p99 {last.p99_ms:.1f} ms",
        f"load program {cpu:.2f} cores",
    ]


def _kafka_facts(results: list[kafka.KafkaProduced]) -> list[str]:
    return [f"record p50 {results[-1].p50_ms:.0f} ms, p99 {results[-1].p99_ms:.0f} ms"]


def _all_names() -> list[tuple[str, str, Goal]]:
    found = []
    for payload in PAYLOADS:
        goal = Goal(f"{payload.goal:g} x Kafka's records/s", payload.goal)
        what = f"produce {payload.title}, Arrow, acks=all, local store with fsync"
        found.append((f"produce-{payload.kind}-prebuilt", f"{what}; prebuilt bodies", goal))
        found.append((f"produce-{payload.kind}-batched", f"{what}; batched by the client", BATCHED_GOAL))
    return found
