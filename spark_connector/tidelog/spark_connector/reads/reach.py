"""Whether Spark's processes reach broker and bucket: an error says which of the two, from where, and what to set.

    check_executors(spark, broker="http://broker:8080", subscribe="web")

Planning asks the broker anyway, and opens a segment from the driver before it makes tasks. The executors may be on
other machines, with other credentials: `check_executors` tries the same from there.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidelog.spark_connector.options.read_options import ReadOptions, parse_options
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.cold_reader import StoreReader
from tidelog.spark_connector.reads.slices import ColdSlice, Slice
from tidelog.spark_connector.reads.snapshot import slices_to_read, store_of, take_snapshot
from tidelog.storage.errors import TidelogError, Unavailable

_S3_ADVICE = (
    " Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, for a store that is not Amazon's, AWS_ENDPOINT_URL "
    "there."
)


@dataclass(frozen=True)
class SegmentPlace:
    """A segment, and the URL of the store that has it."""

    store: str
    key: str


def check_bucket(options: ReadOptions, store: str | None, slices: Iterable[Slice]) -> None:
    """Raise `Unavailable` if this process cannot open a segment of `slices`. The option `store` skips the check: it
    says where the executors find the bucket, and the driver need not reach it."""
    if options.store is None and (place := _first_segment(store, slices)) and (problem := bucket_problem(place)):
        raise Unavailable(problem)


def check_executors(spark: SparkSession, **options: str) -> list[str]:
    """Try to reach broker and bucket from the executors, with a task for each of their cores. Returns the names of the
    hosts. Raises `Unavailable` with the problem of each host that has one."""
    read = parse_options(options)
    broker, place = read.broker, _some_segment(read)
    count = max(1, spark.sparkContext.defaultParallelism)

    def look(_: int) -> tuple[str, str | None]:
        return socket.gethostname(), problem_here(broker, place)

    found = spark.sparkContext.parallelize(range(count), count).map(look).collect()
    if problems := sorted({problem for _, problem in found if problem}):
        raise Unavailable("; ".join(problems))
    return sorted({host for host, _ in found})


def problem_here(broker: str, place: SegmentPlace | None) -> str | None:
    """Why this process does not reach the broker or the bucket; None if it reaches both."""
    try:
        with BrokerConnection(broker, attempts=1) as connection:
            connection.get("/healthz")
    except TidelogError as error:
        return (
            f"the broker does not answer {here()}: {error}. All executors must reach the address in the option 'broker'"
        )
    return bucket_problem(place) if place else None


def bucket_problem(place: SegmentPlace) -> str | None:
    """Why this process cannot read the bucket; None if it can."""
    try:
        StoreReader(place.store).check(place.key)
    except TidelogError as error:
        advice = _S3_ADVICE if place.store.startswith("s3:") else ""
        return (
            f"the bucket cannot be read {here()}: {error}.{advice} If the bucket has another URL there, or only the "
            "executors reach it, name that URL in the option 'store'. With store=broker the broker reads everything"
        )
    return None


def here() -> str:
    """Where this process runs."""
    return f"from {socket.gethostname()} ({'a Spark task' if TaskContext.get() else 'the Spark driver'})"


def _first_segment(store: str | None, slices: Iterable[Slice]) -> SegmentPlace | None:
    if store is None:
        return None
    return next((SegmentPlace(store, each.segment.key) for each in slices if isinstance(each, ColdSlice)), None)


def _some_segment(options: ReadOptions) -> SegmentPlace | None:
    found = (
        _first_segment(store_of(options, topic.log), slices_to_read(options, topic)) for topic in take_snapshot(options)
    )
    return next((place for place in found if place), None)
