"""Run three queries over the same events in one Spark: on Kafka, with `tidelog.spark_connector.read`, and with the data
source.

Each round runs every query on every side in turn. Prints a JSON object: the seconds of each query and side, and the
results, which must be equal.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from infra.spark_kafka import folder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from tidelog.spark_connector import read
from tidelog.spark_connector.sessions.local_session import local_session

WARM_UP_ROUNDS = 2
"""The JVM compiles code while it runs: the first turn of a query takes five times as long as the third."""
EVENT = "service string, request struct<status int, duration_us bigint>"


def count(frame: DataFrame) -> object:
    return frame.count()


def all_columns(frame: DataFrame) -> object:
    """Read every column and discard it."""
    frame.write.format("noop").mode("overwrite").save()
    return None


def json_aggregate(frame: DataFrame) -> object:
    event = F.from_json(F.col("value").cast("string"), EVENT).alias("e")
    found = frame.select(event).groupBy("e.service").agg(F.count("*"), F.sum("e.request.duration_us"))
    return sorted([list(row) for row in found.collect()])


QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "count": count,
    "all columns": all_columns,
    "json aggregate": json_aggregate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", required=True, help="bootstrap server")
    parser.add_argument("--tidelog", required=True, help="the broker's URL")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()
    spark = local_session(
        "benchmark", driver_memory="4g", settings={"spark.jars": ",".join(map(str, folder().glob("*.jar")))}
    )
    sides: dict[str, Callable[[], DataFrame]] = {
        "kafka": lambda: _kafka(spark, options.kafka, options.topic),
        "read": lambda: read(spark, broker=options.tidelog, subscribe=options.topic),
        "source": lambda: _source(spark, options.tidelog, options.topic),
    }
    seconds: dict[str, dict[str, list[float]]] = {query: {side: [] for side in sides} for query in QUERIES}
    answers: dict[str, dict[str, object]] = {query: {} for query in QUERIES}
    for turn in range(WARM_UP_ROUNDS + options.rounds):
        for query, ask in QUERIES.items():
            for side, frame in sides.items():
                start = time.perf_counter()
                answers[query][side] = ask(frame())
                if turn >= WARM_UP_ROUNDS:
                    seconds[query][side].append(time.perf_counter() - start)
    spark.stop()
    print(json.dumps({"seconds": seconds, "answers": answers}))


def _kafka(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format("kafka").options(**options).load()


def _source(spark: SparkSession, broker: str, topic: str) -> DataFrame:
    return spark.read.format("tidelog").options(broker=broker, subscribe=topic).load()


if __name__ == "__main__":
    main()
