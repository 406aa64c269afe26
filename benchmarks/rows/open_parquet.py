"""How many bytes DuckDB, pandas and plain Spark read from segments in MinIO to get the same rows as from a broker.

The broker archives the records; `tidelog compactor --once` merges them to full segments. Each reader then filters a
thousand records, once by offset and once by timestamp. The figure is the worse of both, including headers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from infra.components import component

from benchmarks import minio
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.minio import Minio
from benchmarks.processes import run, run_module
from benchmarks.rows.cold_read import wait_until_cold
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import SERVE, TidelogBroker

RECORDS = 12_000_000
PREFIX = "open"
GOAL = Goal("5 % of the bytes of the segments", 0.05, at_least=False)
READERS = {
    "duckdb": "DuckDB, read_parquet by httpfs",
    "pandas": "pandas.read_parquet with filters",
    "spark": "spark.read.parquet by s3a, default settings",
}


def rows(bench: Bench) -> list[Row]:
    """One row for each reader."""
    if why := minio.missing():
        return [not_run(_name(reader), _what(reader), GOAL, why) for reader in READERS]
    server = Minio(bench.children, bench.fresh_folder("open-parquet"))
    store = f"s3://{minio.BUCKET}/{PREFIX}"
    broker = TidelogBroker(bench.children, store, {"archiver.interval.ms": 500, "archiver.upkeep": "false"}, server.env)
    broker.create_topic("t", configs={"segment.ms": 1})
    records = bench.scaled(RECORDS)
    prebuilt(bench, broker, "events", 2_500, records, "t")
    wait_until_cold(broker, "t", records)
    run([sys.executable, "-c", SERVE, "compactor", "--store", store, "--once"], server.env)
    found = [_read(reader, broker, server) for reader in READERS]
    broker.stop()
    server.stop()
    return found


def _read(reader: str, broker: TidelogBroker, server: Minio) -> Row:
    if reader == "spark" and component("spark-s3").find() is None:
        return not_run(_name(reader), _what(reader), GOAL, component("spark-s3").how)
    arguments = ("--broker", broker.url, "--topic", "t", "--prefix", PREFIX, "--reader", reader)
    out = run_module("benchmarks.loads.open_parquet", *arguments, env=server.env)
    return _row(reader, json.loads(out.strip().splitlines()[-1]))


def _row(reader: str, found: Mapping[str, Any]) -> Row:
    read_mb = {name: read / 1e6 for name, read in found["read_bytes"].items()}
    facts = [f"by {name} {mb:.2f} MB" for name, mb in read_mb.items()]
    ours = Side("read", READERS[reader], "MB", [max(read_mb.values())], facts)
    stored_mb = found["bytes"] / 1e6
    whole = Side("segments", "all segments", "MB", [stored_mb], [f"{found['segments']} segments"])
    return Row(_name(reader), _what(reader), GOAL, max(read_mb.values()) / stored_mb, (ours, whole))


def _name(reader: str) -> str:
    return f"open-parquet-{reader}"


def _what(reader: str) -> str:
    return f"a filter on offset or timestamp by {reader}: bytes read of the segments of JSON events"
