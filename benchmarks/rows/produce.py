"""Produces with acks=all on the local disk: Arrow bodies beside kafka-producer-perf-test, with the same records.

Each side has a topic of four partitions. Tidelog syncs every commit to the disk before it answers; Kafka, with its
default settings, answers from the page cache. Tidelog has two loads: bodies built before the clock starts, and
`Producer.send`, which is called once per record like Kafka's client. Kafka has two loads: its tool with the settings
usual in benchmarks, and with the settings that were fastest here. The broker that is not measured is paused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.payloads import mean_bytes
from benchmarks.processes import alone, run_module
from benchmarks.tidelog_broker import ARROW_CLIENT, BATCHED_CLIENT, TidelogBroker

CONNECTIONS, PARTITIONS = 16, 4


@dataclass(frozen=True)
class Payload:
    """`records`: in a full round (Kafka's client needs some seconds to warm up). `batch`: records of one Arrow body."""

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
BEST_GOAL = Goal("1 x Kafka's records/s at its best settings", 1.0)


@dataclass(frozen=True)
class Sample:
    """One turn of one side: the result of its load program, and the broker's CPU time for `gb` of values."""

    result: kafka.KafkaProduced | LoadResult
    cpu_seconds: float
    gb: float


def rows(bench: Bench) -> list[Row]:
    """Two loads for each of three payloads, beside Kafka's usual settings; for JSON events also beside its best."""
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
    file = bench.payload(payload.kind)
    gb = records * mean_bytes(file) / 1e9

    def on_kafka(properties: Sequence[str]) -> Sample:
        return Sample(*alone(theirs.process, ours.process, lambda: theirs.produce("t", file, records, properties)), gb)

    def on_tidelog(load: Callable[[], LoadResult]) -> Sample:
        return Sample(*alone(ours.process, theirs.process, load), gb)

    sides: dict[str, Callable[[], Sample]] = {
        "kafka": lambda: on_kafka(kafka.PRODUCER),
        "kafka-best": lambda: on_kafka(kafka.BEST),
        "prebuilt": lambda: on_tidelog(
            lambda: prebuilt(bench, ours, payload.kind, payload.batch, records, "prebuilt", PARTITIONS)
        ),
        "batched": lambda: on_tidelog(lambda: batched(bench, ours, payload.kind, records, "batched")),
    }
    for run in sides.values():
        run()  # warm up: the JVM compiles Kafka's broker, and all files are created
    found = interleave(bench.rounds, sides)
    ours.stop()
    theirs.stop()
    return _rows(payload, found)


def _rows(payload: Payload, found: Mapping[str, Sequence[Sample]]) -> list[Row]:
    kafka_side = _side("Kafka", kafka.CLIENT, found["kafka"])
    best_side = _side("Kafka at its best settings", kafka.BEST_CLIENT, found["kafka-best"])
    names = {name: (what, goal) for name, what, goal in _all_names()}
    made = []
    for load, client in (("prebuilt", ARROW_CLIENT), ("batched", BATCHED_CLIENT)):
        side = _side("Tidelog", client, found[load])
        for ending, other in (("", kafka_side), ("-best", best_side)):
            name = f"produce-{payload.kind}-{load}{ending}"
            if name in names:
                made.append(compare(name, *names[name], side, other))
    return made


def _side(name: str, client: str, samples: Sequence[Sample]) -> Side:
    cpu = f"broker {median(one.cpu_seconds / one.gb for one in samples):.1f} CPU s/GB while the load ran"
    last = samples[-1].result
    facts = load_facts([last]) if isinstance(last, LoadResult) else _kafka_facts(last)
    return Side(name, client, "records/s", [one.result.records_per_s for one in samples], [*facts, cpu])


def prebuilt(
    bench: Bench, broker: TidelogBroker, kind: str, batch: int, records: int, topic: str, partitions: int = 1
) -> LoadResult:
    """Send Arrow bodies of `batch` records over `CONNECTIONS` connections, to each partition in turn."""
    out = run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", topic, "--format", "arrow", "--payload", bench.payload(kind)),
        *("--connections", CONNECTIONS, "--batch", batch, "--records", records, "--partitions", partitions),
    )
    return LoadResult.from_output(out)


def batched(bench: Bench, broker: TidelogBroker, kind: str, records: int, topic: str) -> LoadResult:
    """Send with `Producer.send`, one call per record."""
    out = run_module(
        "benchmarks.loads.client_calls",
        *("produce-records", "--url", broker.url, "--topic", topic),
        *("--payload", bench.payload(kind), "--records", records),
    )
    return LoadResult.from_output(out)


def load_facts(results: list[LoadResult]) -> list[str]:
    """Facts of the last round: MB/s, latencies if they were measured, CPU of the load program."""
    last = results[-1]
    latencies = [str(last.latency)] if last.latency else []
    return [f"{last.mb_per_s:.0f} MB/s", *latencies, f"load program {last.cpu_seconds / last.seconds:.2f} cores"]


def _kafka_facts(last: kafka.KafkaProduced) -> list[str]:
    return [f"record p50 {last.p50_ms:.0f} ms, p99 {last.p99_ms:.0f} ms"]


def _all_names() -> list[tuple[str, str, Goal]]:
    found = []
    for payload in PAYLOADS:
        goal = Goal(f"{payload.goal:g} x Kafka's records/s", payload.goal)
        what = f"produce {payload.title}, Arrow, acks=all, local store with fsync"
        found.append((f"produce-{payload.kind}-prebuilt", f"{what}; prebuilt bodies", goal))
        found.append((f"produce-{payload.kind}-batched", f"{what}; batched by the client", BATCHED_GOAL))
        if payload.kind == "events":
            found.append((f"produce-{payload.kind}-prebuilt-best", f"{what}; prebuilt bodies", BEST_GOAL))
            found.append((f"produce-{payload.kind}-batched-best", f"{what}; batched by the client", BEST_GOAL))
    return found
