"""Kafka's own load tools against Tidelog's listener and against Kafka 4.1.

The clients are the same program with the same settings, so a row compares the brokers. Tidelog syncs every commit to
the disk before it answers; Kafka, with its default settings, answers from the page cache. The broker that is not
measured is paused. `kafka_in_flight.py` measures one producer beside slow commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from infra.kafka import VERSION
from infra.loopback_ports import free_port

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.payloads import mean_bytes
from benchmarks.processes import Child, alone
from benchmarks.tidelog_broker import TidelogBroker

PARTITIONS = (1, 4)
CONSUMED_RECORDS = 1_000_000
CACHE_MIB = 2048  # all records stay in memory, as they were sent and decoded
COLD_SECONDS_MAX = 300.0
HOT_SETTINGS = {"cache.max.bytes": CACHE_MIB << 20, "archiver.min.bytes": 1 << 40, "archiver.interval.ms": 86_400_000}


@dataclass(frozen=True)
class Payload:
    """`records`: in a full round (Kafka's client needs some seconds to warm up)."""

    kind: str
    title: str
    records: int


@dataclass(frozen=True)
class Client:
    """Settings of the producer."""

    name: str
    title: str
    properties: Sequence[str]
    goal: Goal


@dataclass(frozen=True)
class Sample:
    """One turn of one side: its rate, and the broker's CPU seconds for a GB of values."""

    rate: float
    cpu_s_per_gb: float


@dataclass(frozen=True)
class Served:
    """A broker, and Kafka's tools against it."""

    process: Child
    tools: kafka.KafkaTools


PAYLOADS = (
    Payload("events", "JSON events of 376 bytes", 1_500_000),
    Payload("letters", "1 KiB of random letters", 600_000),
    Payload("hundred", "100 bytes", 4_000_000),
)
CLIENTS = (
    Client("defaults", "128 KiB batches, linger 5", kafka.PRODUCER, Goal("0.8 x Kafka's records/s", 0.8)),
    Client("lz4", "lz4, 1 MiB batches, linger 20", kafka.BEST, Goal("0.7 x Kafka's records/s", 0.7)),
)
READS = {"hot": Goal("1 x Kafka's MB/s", 1.0), "archive": Goal("0.7 x Kafka's MB/s", 0.7)}


def rows(bench: Bench) -> list[Row]:
    if why := kafka.missing():
        return [not_run(name, what, goal, why) for name, what, goal in names()]
    produced = [row for payload in PAYLOADS for count in PARTITIONS for row in _produce(bench, payload, count)]
    return [*produced, *(_consume(bench, where, count) for where in READS for count in PARTITIONS)]


def tidelog_listening(
    bench: Bench, store: str, settings: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None
) -> tuple[TidelogBroker, Served]:
    """A broker that listens for Kafka's clients."""
    port = free_port()
    listening = {**(settings or {}), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    broker = TidelogBroker(bench.children, store, listening, env)
    return broker, Served(broker.process, kafka.KafkaTools(bench.children, f"127.0.0.1:{port}"))


def _produce(bench: Bench, payload: Payload, partitions: int) -> list[Row]:
    folder, records = bench.fresh_folder("kafka-protocol"), bench.scaled(payload.records)
    theirs = kafka.KafkaBroker(bench.children, folder)
    ours, served = tidelog_listening(bench, f"file:{folder / 'tidelog'}")
    both = {"tidelog": served, "kafka": Served(theirs.process, theirs)}
    sides: dict[str, Callable[[], Sample]] = {}
    for client in CLIENTS:
        for name, side in both.items():
            other = next(one for one in both.values() if one is not side)
            side.tools.create_topic(client.name, partitions)
            sides[f"{name}-{client.name}"] = _producing(side, other, client, bench.payload(payload.kind), records)
    found = _in_turn(bench, sides)
    ours.stop()
    theirs.stop()
    known = {name: (what, goal) for name, what, goal in names()}
    made = []
    for client in CLIENTS:
        name = f"kafka-produce-{payload.kind}-{client.name}-{partitions}"
        settings = f"kafka-producer-perf-test {VERSION}, {' '.join(client.properties)}"
        side = _side("Tidelog", settings, "records/s", found[f"tidelog-{client.name}"])
        made.append(
            compare(name, *known[name], side, _side("Kafka", settings, "records/s", found[f"kafka-{client.name}"]))
        )
    return made


def _producing(side: Served, other: Served, client: Client, file: Path, records: int) -> Callable[[], Sample]:
    gb = records * mean_bytes(file) / 1e9

    def produce() -> Sample:
        load = lambda: side.tools.produce(client.name, file, records, client.properties)  # noqa: E731
        result, cpu_seconds = alone(side.process, other.process, load)
        return Sample(result.records_per_s, cpu_seconds / gb)

    return produce


def _consume(bench: Bench, where: str, partitions: int) -> Row:
    """Both sides have the records of the same producer, without compression."""
    folder, records, file = (
        bench.fresh_folder("kafka-protocol"),
        bench.scaled(CONSUMED_RECORDS),
        bench.payload("events"),
    )
    theirs = kafka.KafkaBroker(bench.children, folder)
    store = f"file:{folder / 'tidelog'}"
    ours, served = tidelog_listening(bench, store, HOT_SETTINGS if where == "hot" else {})
    for tools in (theirs, served.tools):
        tools.create_topic("t", partitions)
        tools.produce("t", file, records)
    if where == "archive":
        ours.wait_until_archived("t", partitions, COLD_SECONDS_MAX)
        ours.stop()
        ours, served = tidelog_listening(bench, store)
    kafkas, gb = Served(theirs.process, theirs), records * mean_bytes(file) / 1e9
    sides = {"kafka": _consuming(kafkas, served, records, gb), "tidelog": _consuming(served, kafkas, records, gb)}
    found = _in_turn(bench, sides)
    ours.stop()
    theirs.stop()
    name = f"kafka-consume-{where}-{partitions}"
    what, goal = {name: (what, goal) for name, what, goal in names()}[name]
    side, other = (_side(title, kafka.CONSUMER, "MB/s", found[title.lower()]) for title in ("Tidelog", "Kafka"))
    return compare(name, what, goal, side, other)


def _consuming(side: Served, other: Served, records: int, gb: float) -> Callable[[], Sample]:
    def consume() -> Sample:
        mb_per_s, cpu_seconds = alone(side.process, other.process, lambda: side.tools.consume("t", records))
        return Sample(mb_per_s, cpu_seconds / gb)

    return consume


def _in_turn(bench: Bench, sides: Mapping[str, Callable[[], Sample]]) -> Mapping[str, Sequence[Sample]]:
    if not bench.quick:
        for run in sides.values():
            run()  # warm up: the JVM compiles Kafka's broker, and all files are created
    return interleave(bench.rounds, sides)


def _side(name: str, client: str, unit: str, samples: Sequence[Sample]) -> Side:
    cpu = f"broker {median(one.cpu_s_per_gb for one in samples):.1f} CPU s/GB"
    return Side(name, client, unit, [one.rate for one in samples], [cpu])


def names() -> list[tuple[str, str, Goal]]:
    """Name, what, and goal of each row."""
    found = []
    for count in PARTITIONS:
        where = "1 partition" if count == 1 else f"{count} partitions"
        for payload in PAYLOADS:
            for client in CLIENTS:
                what = f"Kafka's protocol: produce {payload.title}, acks=all, {client.title}, {where}"
                found.append((f"kafka-produce-{payload.kind}-{client.name}-{count}", what, client.goal))
        for read, goal in READS.items():
            place = "hot" if read == "hot" else "from the archive, default settings"
            what = f"Kafka's protocol: consume JSON events of 376 bytes, {place}, {where}"
            found.append((f"kafka-consume-{read}-{count}", what, goal))
    return found
