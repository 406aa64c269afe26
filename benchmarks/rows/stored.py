"""Stored bytes of the same events: Tidelog's segments after archiving and merging, Kafka's log with
compression.type=zstd."""

from __future__ import annotations

import time

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side, compare, not_run
from benchmarks.payloads import mean_bytes
from benchmarks.processes import Failed
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import ARROW_CLIENT, TidelogBroker

RECORDS = 1_000_000
ARCHIVE_SECONDS = 240.0
FINAL_AFTER_MS = 60_000
"""Long enough to archive all records first, so that they end in one final segment."""
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
    broker = TidelogBroker(bench.children, store, {"archiver.interval.ms": 500})
    broker.create_topic("t", configs={"segment.ms": FINAL_AFTER_MS})
    prebuilt(bench, broker, "events", 2_500, records, "t")
    deadline = time.monotonic() + ARCHIVE_SECONDS
    while (cold := broker.log("t").cold_end) < records or len(broker.segments("t")) > 1:
        if time.monotonic() > deadline:
            raise Failed(f"{cold} of {records} records are in {len(broker.segments('t'))} segments")
        time.sleep(0.2)
    segments = broker.segments("t")
    broker.stop()
    return sum(segment.size_bytes for segment in segments) / 1e6
