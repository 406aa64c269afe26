"""How many bytes DuckDB, plain Spark and pandas read from MinIO to get 1 % of the offsets of one partition, in a topic
of 1,000 partitions.

The records of each request go to all partitions in turn, so all partitions are small and share row groups. Each reader
filters twice: in the segments as the archiver writes them (level 0), and after `tidelog compactor --once` has merged
them to final ones. A proxy counts the bytes that it receives, headers included.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.ipc
from infra.components import component

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.loads.prebuilt import ARROW
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.minio import Minio
from benchmarks.payloads import SEED
from benchmarks.processes import Failed, run, run_module
from benchmarks.tidelog_broker import SERVE, TidelogBroker

RECORDS = 3_000_000
PARTITIONS = 1_000
REQUEST_RECORDS = 100_000
PREFIX = "open"
SETTINGS = {"archiver.interval.ms": 5_000, "archiver.upkeep": "false"}
ARCHIVED_S_MAX = 300.0
GOAL = Goal("5 % of the bytes of the segments", 0.05, at_least=False)
READERS = {
    "duckdb": "DuckDB, read_parquet by httpfs",
    "spark": "spark.read.parquet by s3a, with the settings of s3_options()",
    "spark-defaults": "spark.read.parquet by s3a, default settings",
    "pandas": "pandas.read_parquet with filters",
}
STATES = {"archived": "as the archiver writes them", "merged": "after merging"}


def rows(bench: Bench) -> list[Row]:
    """One row for each reader and state of the segments."""
    if why := minio.missing():
        return [_missing(reader, state, why) for state in STATES for reader in READERS]
    topic = _Topic.produced(bench)
    found = topic.read("archived")
    topic.merge()
    found += topic.read("merged")
    topic.stop()
    return found


@dataclass(frozen=True)
class _Topic:
    """The topic ``t``, its broker and its store."""

    server: Minio
    broker: TidelogBroker
    store: str

    @classmethod
    def produced(cls, bench: Bench) -> _Topic:
        """Produce, and wait until all records are archived."""
        server = Minio(bench.children, bench.fresh_folder("open-parquet"))
        store = f"s3://{minio.BUCKET}/{PREFIX}"
        broker = TidelogBroker(bench.children, store, SETTINGS, server.env)
        broker.create_topic("t", PARTITIONS, {"segment.ms": 1})
        _produce(bench, broker, bench.scaled(RECORDS))
        _wait_until_archived(broker)
        return cls(server, broker, store)

    def merge(self) -> None:
        run([sys.executable, "-c", SERVE, "compactor", "--store", self.store, "--once"], self.server.env)

    def read(self, state: str) -> list[Row]:
        """A row for each reader, one after the other in one process."""
        readers = [reader for reader in READERS if not _is_spark(reader) or component("spark-s3").find()]
        arguments = ("--broker", self.broker.url, "--topic", "t", "--prefix", PREFIX, "--readers", *readers)
        out = run_module("benchmarks.loads.open_parquet", *arguments, env=self.server.env)
        found = json.loads(out.strip().splitlines()[-1])
        without = set(READERS) - set(readers)
        rows = [_row(reader, state, found) for reader in readers]
        return rows + [_missing(reader, state, component("spark-s3").how) for reader in sorted(without)]

    def stop(self) -> None:
        self.broker.stop()
        self.server.stop()


def _produce(bench: Bench, broker: TidelogBroker, records: int) -> None:
    """Send requests whose records go to all partitions in turn."""
    values = bench.payload("events").read_bytes().splitlines()
    draw = random.Random(SEED)
    places = pa.array([number % PARTITIONS for number in range(REQUEST_RECORDS)], pa.int32())
    with httpx.Client(base_url=broker.url, timeout=60, trust_env=False) as client:
        for _ in range(0, records, REQUEST_RECORDS):
            chosen = pa.array(draw.choices(values, k=REQUEST_RECORDS), pa.binary())
            _send(client, _body(pa.record_batch({"value": chosen, "partition": places})))


def _body(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def _send(client: httpx.Client, body: bytes) -> None:
    while (answer := client.post("/v1/topics/t/records", content=body, headers={"Content-Type": ARROW})).is_error:
        if answer.status_code != 503:
            raise Failed(f"the broker answered {answer.status_code}: {answer.text[:500]}")
        time.sleep(float(answer.headers["Retry-After"]))


def _wait_until_archived(broker: TidelogBroker) -> None:
    deadline = time.monotonic() + ARCHIVED_S_MAX
    while (last := broker.log("t", PARTITIONS - 1)).cold_end < last.high_watermark:
        if time.monotonic() > deadline:
            raise Failed(f"{last.cold_end} of {last.high_watermark} offsets were archived in {ARCHIVED_S_MAX:.0f} s")
        time.sleep(0.5)


def _row(reader: str, state: str, found: Mapping[str, Any]) -> Row:
    read_mb, stored_mb, footer_mb = (
        size / 1e6 for size in (found["read_bytes"][reader], found["bytes"], found["footer_bytes"])
    )
    ours = Side("read", READERS[reader], "MB", [read_mb], [f"{found['records']} records of one partition"])
    facts = [f"{found['segments']} segments", f"their footers: {footer_mb:.2f} MB"]
    whole = Side("segments", f"all segments, {STATES[state]}", "MB", [stored_mb], facts)
    return Row(_name(reader, state), _what(reader, state), GOAL, read_mb / stored_mb, (ours, whole))


def _missing(reader: str, state: str, why: str) -> Row:
    return not_run(_name(reader, state), _what(reader, state), GOAL, why)


def _is_spark(reader: str) -> bool:
    return reader.startswith("spark")


def _name(reader: str, state: str) -> str:
    return f"open-parquet-{reader}-{state}"


def _what(reader: str, state: str) -> str:
    filtered = f"1 % of the offsets of one partition of {PARTITIONS:,}, by {reader}"
    return f"{filtered}: bytes read of the segments {STATES[state]}"
