"""Runs a stream into a topic, each row once: what the jobs that write have in common."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidelog.spark_connector.options.option_text import DEFAULT_BROKER
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.storage.errors import Invalid

PROGRESS_KEPT = 100_000
"""Micro-batches of one run whose rows are counted."""


@dataclass(frozen=True)
class TopicTarget:
    """Where a stream writes. `checkpoint`: its folder, in which it continues after a crash. `ends`: once everything
    that is there at the start is written; otherwise it goes on."""

    topic: str
    broker: str
    checkpoint: str
    ends: bool

    @property
    def facts(self) -> Mapping[str, str]:
        return {"to": self.topic, "checkpoint": self.checkpoint}


def add_target_options(parser: ArgumentParser, *, may_follow: bool) -> None:
    """Options that say where a stream writes."""
    parser.add_argument("--to", required=True, metavar="TOPIC", help="the topic to write; it must exist")
    parser.add_argument("--broker", default=DEFAULT_BROKER, help="URL of a broker (default: %(default)s)")
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="FOLDER",
        help="where the run remembers its place, on a disk or in a bucket that the driver keeps reaching; start the "
        "job again with the same one after a crash, and each row is written once",
    )
    if may_follow:
        parser.add_argument("--follow", action="store_true", help="go on with new records until it is stopped")


def target_of(given: Namespace) -> TopicTarget:
    """Raises `Invalid`."""
    if not given.checkpoint.strip():
        raise Invalid("--checkpoint is empty: name a folder", field="checkpoint")
    return TopicTarget(given.to, given.broker, given.checkpoint, not getattr(given, "follow", False))


def partitions_of_target(target: TopicTarget) -> int:
    """How many the topic has. Raises `NotFound`, `Unavailable`."""
    with BrokerConnection(target.broker) as connection:
        return len(connection.topic(target.topic).partitions)


def topic_stream(spark: SparkSession, broker: str, topic: str) -> DataFrame:
    """The records of `topic` from its first one on, with headers."""
    options = {"broker": broker, "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    return spark.readStream.format("tidelog").options(**options).load()


def write_stream(spark: SparkSession, rows: DataFrame, target: TopicTarget, output_mode: str = "append") -> int:
    """Write `rows` (a stream) until it ends, and return how many rows it read."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", PROGRESS_KEPT)
    options = {"topic": target.topic, "broker": target.broker, "checkpointLocation": target.checkpoint}
    writer = rows.writeStream.format("tidelog").outputMode(output_mode).options(**options)
    query = (writer.trigger(availableNow=True) if target.ends else writer).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return sum(_rows(progress) for progress in query.recentProgress)


def _rows(progress: Any) -> int:
    return int(progress["numInputRows"])
