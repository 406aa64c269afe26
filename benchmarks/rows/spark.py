"""Three Spark queries over the same events in one session: Spark on Kafka, and Tidelog's two ways.

Tidelog's records are archived except for the last 20,000, which are in the hot tail. Kafka's are in its log. Both
topics have four partitions. The local store and Kafka's log are on the same disk.
"""

from __future__ import annotations

import json
import time

from infra.spark_kafka import SPARK_KAFKA, VERSION

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, compare, not_run
from benchmarks.processes import Failed, run_module
from benchmarks.tidelog_broker import TidelogBroker

RECORDS, HOT_RECORDS, BATCH, PARTITIONS = 3_000_000, 20_000, 2_500, 4
ARCHIVE_SECONDS = 180.0
GOALS = (("count", 12.0), ("all columns", 4.0), ("json aggregate", 2.0))
KAFKA_CLIENT = f"Spark's own Kafka source (spark-sql-kafka {VERSION}), four partitions, two cores"
CLIENTS = {
    "read": "tidelog.spark_connector.read: segments by Spark's Parquet reader, the hot tail through the broker",
    "source": 'spark.read.format("tidelog"): the Python data source',
}


def rows(bench: Bench) -> list[Row]:
    """Three rows with `read`, for which the goals are set, and three with the data source, for comparison."""
    if why := kafka.missing() or kafka.missing(SPARK_KAFKA):
        return [not_run(_name(query, "read"), _what(query, "read"), _goal(times), why) for query, times in GOALS]
    folder = bench.fresh_folder("spark")
    records = bench.scaled(RECORDS)
    theirs = kafka.KafkaBroker(bench.children, folder)
    theirs.create_topic("t", PARTITIONS)
    theirs.produce("t", bench.payload("events"), records + HOT_RECORDS)
    ours = TidelogBroker(bench.children, f"file:{folder / 'tidelog'}", {"archiver.interval.ms": 1_000})
    ours.create_topic("t", PARTITIONS)
    _produce(bench, ours, records)
    _wait_until_cold(ours, records)
    _produce(bench, ours, HOT_RECORDS)
    out = run_module(
        "benchmarks.loads.spark_queries",
        *("--kafka", theirs.bootstrap, "--tidelog", ours.url, "--topic", "t", "--rounds", bench.rounds),
    )
    ours.stop()
    theirs.stop()
    found = json.loads(out.strip().splitlines()[-1])
    _check_counts(found["answers"]["count"], records + HOT_RECORDS)
    return [_row(query, times, side, found["seconds"][query]) for side in CLIENTS for query, times in GOALS]


def _row(query: str, times: float, side: str, seconds: dict[str, list[float]]) -> Row:
    """Make a row whose figure is their time divided by ours."""
    ours = Side("Tidelog", CLIENTS[side], "s", seconds[side])
    theirs = Side("Spark on Kafka", KAFKA_CLIENT, "s", seconds["kafka"])
    row = compare(_name(query, side), _what(query, side), _goal(times), ours, theirs)
    return Row(row.name, row.what, row.goal, theirs.median / ours.median, row.sides)


def _name(query: str, side: str) -> str:
    return f"spark-{side}-{query.replace(' ', '-')}"


def _what(query: str, side: str) -> str:
    return f"Spark {query} over 3 M events, by {'read()' if side == 'read' else 'the data source'}"


def _goal(times: float) -> Goal:
    return Goal(f"{times:g} x faster than Spark on Kafka", times)


def _produce(bench: Bench, broker: TidelogBroker, records: int) -> None:
    run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", "t", "--partitions", PARTITIONS, "--payload", bench.payload("events")),
        *("--batch", BATCH, "--records", records),
    )


def _wait_until_cold(broker: TidelogBroker, records: int) -> None:
    deadline = time.monotonic() + ARCHIVE_SECONDS
    while (cold := sum(broker.log("t", partition).cold_end for partition in range(PARTITIONS))) < records:
        if time.monotonic() > deadline:
            raise Failed(f"{cold} of {records} records were archived in {ARCHIVE_SECONDS:.0f} s")
        time.sleep(0.2)


def _check_counts(counts: dict[str, int], records: int) -> None:
    if counts["read"] != records or counts["source"] != records or counts["kafka"] != records:
        raise Failed(f"Spark counted {counts}, {records} were produced")
