"""One idempotent Kafka producer with five requests in flight, on MinIO with a flush every 250 ms.

A broker that answers one request before it begins the next one would take one request per flush. The rows show MB/s,
and how many requests a flush takes. MinIO answers from this machine, so a flush waits for its interval and hardly for
S3."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from infra.kafka import VERSION

from benchmarks import kafka, minio
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.payloads import mean_bytes
from benchmarks.rows.kafka_protocol import Served, tidelog_listening
from benchmarks.tidelog_broker import TidelogBroker

FLUSH_MS, RECORDS = 250, 300_000
IDEMPOTENT = ["enable.idempotence=true", "max.in.flight.requests.per.connection=5"]
CLIENTS = {
    "plain": ["acks=all", "batch.size=1048576", "linger.ms=20", *IDEMPOTENT],
    "lz4": [*kafka.BEST, *IDEMPOTENT],
}
RATE_GOAL = Goal("20 MB/s", 20.0)
SHARED_GOAL = Goal("at least 2 requests per flush", 2.0)
WHAT = f"Kafka's protocol: one idempotent producer, 5 requests in flight, MinIO, a flush every {FLUSH_MS} ms"


@dataclass(frozen=True)
class Sample:
    mb_per_s: float
    requests: int
    flushes: int


def rows(bench: Bench) -> list[Row]:
    if why := kafka.missing() or minio.missing():
        return [
            not_run(name, WHAT, goal, why)
            for client in CLIENTS
            for name, goal in (
                (f"kafka-in-flight-{client}", RATE_GOAL),
                (f"kafka-in-flight-{client}-shared", SHARED_GOAL),
            )
        ]
    server = minio.Minio(bench.children, bench.fresh_folder("kafka-in-flight"))
    settings = {"flush.interval.ms": FLUSH_MS}
    broker, served = tidelog_listening(bench, f"s3://{minio.BUCKET}/in-flight", settings, server.env)
    found = {name: [_sample(bench, broker, served, name) for _ in range(1 + bench.rounds)][1:] for name in CLIENTS}
    broker.stop()
    server.stop()
    return [row for name, samples in found.items() for row in _rows(name, samples)]


def _sample(bench: Bench, broker: TidelogBroker, served: Served, client: str) -> Sample:
    file, records = bench.payload("events"), bench.scaled(RECORDS)
    requests, flushes = broker.kafka_requests("Produce"), broker.wal_entries()
    result = served.tools.produce("t", file, records, CLIENTS[client])
    mb_per_s = result.records_per_s * mean_bytes(file) / 1e6
    return Sample(mb_per_s, broker.kafka_requests("Produce") - requests, broker.wal_entries() - flushes)


def _rows(client: str, samples: list[Sample]) -> list[Row]:
    text = f"kafka-producer-perf-test {VERSION}, {' '.join(CLIENTS[client])}"
    what = f"{WHAT}, {'lz4' if client == 'lz4' else 'no compression'}"
    last = samples[-1]
    facts = [f"{last.requests} requests in {last.flushes} flushes"]
    rate = Side("Tidelog", text, "MB/s", [one.mb_per_s for one in samples], facts)
    shared = Side("Tidelog", text, "requests per flush", [one.requests / one.flushes for one in samples], facts)
    return [
        Row(f"kafka-in-flight-{client}", what, RATE_GOAL, median(rate.samples), (rate,)),
        Row(f"kafka-in-flight-{client}-shared", what, SHARED_GOAL, median(shared.samples), (shared,)),
    ]
