"""Stored bytes of the same events: Tidelog's segments after archiving and merging, Kafka's log with
compression.type=zstd.

`tidelog compactor --once` merges, because a broker compresses as well as that only after ten idle minutes.
"""

from __future__ import annotations

import sys

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, compare, not_run
from benchmarks.payloads import mean_bytes
from benchmarks.processes import Failed, run
from benchmarks.rows.cold_read import wait_until_cold
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import ARROW_CLIENT, SERVE, TidelogBroker

RECORDS = 1_000_000
ARCHIVES = {"archiver.interval.ms": 500, "archiver.upkeep": "false"}
NEVER = {"archiver.interval.ms": 86_400_000, "archiver.upkeep": "false"}
GOAL = Goal("0.7 x Kafka's bytes with zstd", 0.7, at_least=False)
NAME, WHAT = "stored-bytes", "stored bytes of JSON events of 376 bytes after archiving and merging"


def rows(bench: Bench) -> list[Row]:
    if why := kafka.missing():
        return [not_run(NAME, WHAT, GOAL, why)]
    folder = bench.fresh_folder("stored")
    records = bench.scaled(RECORDS)
    raw_mb = records * mean_bytes(bench.payload("events")) / 1e6
    theirs = kafka.KafkaBroker(bench.children, folder)
    theirs.create_topic("t")
    theirs.produce("t", bench.payload("events"), records, [*kafka.PRODUCER, "compression.type=zstd"])
    kafka_mb = theirs.log_bytes("t") / 1e6
    theirs.stop()
    mb = _segments_mb(bench, f"file:{folder / 'tidelog'}", records)
    ours = Side("Tidelog", ARROW_CLIENT, "MB", [mb], [f"{mb / raw_mb:.3f} of the values' bytes"])
    client = f"{kafka.CLIENT} compression.type=zstd"
    return [
        compare(NAME, WHAT, GOAL, ours, Side("Kafka", client, "MB", [kafka_mb], [f"{kafka_mb / raw_mb:.3f} of them"]))
    ]


def _segments_mb(bench: Bench, store: str, records: int) -> float:
    """The size of all segments after every record is in a final one."""
    broker = TidelogBroker(bench.children, store, ARCHIVES)
    broker.create_topic("t", configs={"segment.ms": 1})
    prebuilt(bench, broker, "events", 2_500, records, "t")
    wait_until_cold(broker, "t", records)
    broker.stop()
    run([sys.executable, "-c", SERVE, "compactor", "--store", store, "--once"])
    broker = TidelogBroker(bench.children, store, NEVER)
    segments = broker.segments("t")
    broker.stop()
    if len(segments) > 1:
        raise Failed(f"{records} records are in {len(segments)} segments: they were not merged")
    return sum(segment.size_bytes for segment in segments) / 1e6
