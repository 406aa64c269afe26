"""``repartition``: the records of a topic into one with more partitions, or fewer, each once.

    tidelog topic create orders-32 --partitions 32
    tidelog spark run repartition --from orders --to orders-32 --checkpoint /data/repartition --follow

A key goes to the partition that its murmur2 chooses there. Records of a key stay in their order, because they lie in
one partition, which is read in order. Headers are copied. Offsets and timestamps are new: a record gets the time at
which it is appended.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pyspark.sql import SparkSession

from tidelog.spark_connector.jobs.job import Facts, JobKind, Outcome
from tidelog.spark_connector.jobs.stream_to_topic import (
    TopicTarget,
    add_target_options,
    partitions_of_target,
    target_of,
    topic_stream,
    write_stream,
)
from tidelog.spark_connector.jobs.topic_ranges import ranges_now
from tidelog.storage.errors import Invalid

FIELDS = ("key", "value", "headers")


class Repartition:
    """See `job.Job`."""

    def __init__(self, spark: SparkSession, source: str, target: TopicTarget) -> None:
        self._spark = spark
        self._source = source
        self._target = target

    def plan(self) -> Facts:
        found = ranges_now({"subscribe": self._source, "broker": self._target.broker})
        partitions = partitions_of_target(self._target)
        return {
            "from": self._source,
            "from_partitions": found.partitions,
            "offsets": found.offsets,
            **self._target.facts,
            "partitions": partitions,
        }

    def run(self) -> Outcome:
        rows = topic_stream(self._spark, self._target.broker, self._source).select(*FIELDS)
        written = write_stream(self._spark, rows, self._target)
        return Outcome({"from": self._source, **self._target.facts, "records": written})


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic to read")
    add_target_options(parser, may_follow=True)


def _open(spark: SparkSession, given: Namespace) -> Repartition:
    if given.source == given.to:
        raise Invalid(f"--from and --to are the same topic, {given.to}: it would never end", field="to")
    return Repartition(spark, given.source, target_of(given))


REPARTITION = JobKind("repartition", "copy a topic into one with other partitions, keys in order", _add_options, _open)
