"""A streaming query that writes down what each of its batches read, also as a program, which is killed in a batch:

python -m tests.spark.stream_driver BROKER CHECKPOINT SEEN BATCH
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.spark_connector.sessions.local_session import local_session

Place = tuple[str, int, int]
AfterBatch = Callable[[int], None]


def run_now(
    spark: SparkSession, checkpoint: Path, seen: Path, after: AfterBatch = lambda _: None, **options: str
) -> None:
    """Read everything that there is now. `after` is called when a batch was written down and is not committed yet."""
    started(spark, checkpoint, seen, after, **options).awaitTermination()


def started(
    spark: SparkSession, checkpoint: Path, seen: Path, after: AfterBatch = lambda _: None, **options: str
) -> StreamingQuery:
    seen.mkdir(exist_ok=True)

    def write_down(batch: DataFrame, number: int) -> None:
        rows = sorted(tuple(row) for row in batch.select("topic", "partition", "offset").collect())
        _write(seen, number, json.dumps(rows))
        after(number)

    stream = spark.readStream.format("tidelog").options(**options).load()
    writer = stream.writeStream.foreachBatch(write_down).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def _write(seen: Path, number: int, text: str) -> None:
    """A batch that runs again must read the same."""
    path = seen / f"{number}.json"
    assert not path.exists() or path.read_text() == text, f"batch {number} read other rows the second time"
    path.write_text(text)


def batches(seen: Path) -> list[list[Place]]:
    """What each batch read, in order."""
    paths = sorted(seen.iterdir(), key=lambda path: int(path.stem))
    assert [path.stem for path in paths] == [str(number) for number in range(len(paths))]
    return [[(topic, partition, offset) for topic, partition, offset in json.loads(path.read_text())] for path in paths]


def places(seen: Path) -> list[Place]:
    """What all batches read together."""
    return sorted(place for batch in batches(seen) for place in batch)


def main(broker: str, checkpoint: str, seen: str, last_batch: str) -> None:
    """Kill this process, its JVM and its workers within a batch, as a machine that fails."""

    def kill(number: int) -> None:
        if number == int(last_batch):
            os.killpg(0, signal.SIGKILL)

    session = local_session("killed")
    options = {"broker": broker, "subscribe": "web", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "320"}
    run_now(session, Path(checkpoint), Path(seen), kill, **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
