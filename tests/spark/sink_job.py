"""A streaming job as its own process: it writes the numbers from 0 on, each one once, to a topic, until it is killed.

    python -m tests.spark.sink_job BROKER TOPIC CHECKPOINT ROWS_PER_BATCH MASTER

Started again, it continues from its checkpoint. A shuffle makes Spark compute a part of the work again if an executor
is lost.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tidelog.spark_connector.sessions.local_session import local_session

SETTINGS = {"spark.task.maxFailures": "100", "spark.deploy.maxExecutorRetries": "-1"}
"""Spark must not give up because of the kills themselves."""


def main() -> int:
    broker, topic, checkpoint, rows_per_batch, master = sys.argv[1:]
    session = local_session("sink", settings={**SETTINGS, "spark.master": master})
    started(session, broker, topic, checkpoint, rows_per_batch).awaitTermination()
    return 0


def started(session: SparkSession, broker: str, topic: str, checkpoint: str, rows_per_batch: str) -> StreamingQuery:
    options = {"rowsPerBatch": rows_per_batch, "numPartitions": "3"}
    numbers = session.readStream.format("rate-micro-batch").options(**options).load()
    records = numbers.repartition(3, "value").selectExpr(
        "cast(value as string) as value", "cast(value % 97 as string) as key"
    )
    options = {"broker": broker, "topic": topic, "checkpointLocation": checkpoint}
    return records.writeStream.format("tidelog").options(**options).start()


if __name__ == "__main__":
    sys.exit(main())
