"""Spark's own Kafka connector: `python spark_program.py BOOTSTRAP FOLDER BASE_MS`.

Reads the topic `events` as a batch, by time, and as a stream with a restart; writes it to `copied` as a batch and to
`streamed` as a stream. Writes what it saw as JSON into FOLDER.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from infra.spark_kafka import folder as jars
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from tidelog.spark_connector.sessions.local_session import local_session

SEEN = "seen.json"
STEP = 70
"""Offsets of one batch of the stream, so that it has several."""


def main(bootstrap: str, folder: Path, base_ms: int) -> None:
    spark = local_session("kafka", settings={"spark.jars": ",".join(map(str, jars().glob("*.jar")))})
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        circle = Circle(spark, bootstrap, folder)
        events = circle.batch("events")
        seen = {
            "batch": rows_of(events),
            "by_time": rows_of(circle.batch("events", startingTimestamp=base_ms + 40)),
            "stream": circle.stream_with_restart(),
        }
        circle.write(events, "copied")
        circle.stream_to("streamed")
    finally:
        spark.stop()
    (folder / SEEN).write_text(json.dumps(seen))


class Circle:
    """`folder` keeps checkpoints and what streams found."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true", "startingOffsets": "earliest"}

    def batch(self, topic: str, **options: object) -> DataFrame:
        return self._spark.read.format("kafka").options(**self._options, subscribe=topic, **options).load()

    def stream(self) -> DataFrame:
        options = {**self._options, "subscribe": "events", "maxOffsetsPerTrigger": str(STEP)}
        return self._spark.readStream.format("kafka").options(**options).load()

    def write(self, frame: DataFrame, topic: str) -> None:
        written = frame.select("partition", "key", "value", "headers")
        written.write.format("kafka").options(**self._options, topic=topic).save()

    def stream_with_restart(self) -> dict[str, object]:
        """All rows by a stream that reads what is there, and the batches of the same stream, started again."""
        schema = self.stream().schema
        batches = [self._to_parquet() for _ in range(2)]
        found = self._spark.read.schema(StructType(schema.fields)).parquet(str(self._folder / "found"))
        return {"rows": rows_of(found), "batches": batches}

    def _to_parquet(self) -> int:
        places = {"checkpointLocation": str(self._folder / "read"), "path": str(self._folder / "found")}
        query = self.stream().writeStream.format("parquet").options(**places).trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)

    def stream_to(self, topic: str) -> None:
        options = {**self._options, "topic": topic, "checkpointLocation": str(self._folder / "write")}
        written = self.stream().select("partition", "key", "value", "headers")
        query = written.writeStream.format("kafka").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()


def rows_of(frame: DataFrame) -> list[list[object]]:
    return [_shown(row) for row in frame.orderBy("partition", "offset").collect()]


def _shown(row: Row) -> list[object]:
    """As the other programs print a record, and its topic."""
    headers = [part for each in row.headers or () for part in (each.key, _text(each["value"]))]
    timestamp_ms = round(row.timestamp.timestamp() * 1000)
    return [row.partition, row.offset, timestamp_ms, _text(row.key), _text(row.value), headers, row.topic]


def _text(given: bytearray | None) -> str | None:
    return None if given is None else given.decode()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
