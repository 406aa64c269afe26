"""``verify``: checks every byte of a bucket, its segments on a cluster.

    tidelog spark run verify --store s3://my-bucket/log

The driver reads the manifests and distributes the segments; each task reads and checks some of them, as `tidelog bucket
verify --deep` does. Then the driver checks the rest itself: the write-ahead logs, the manifests with their history, and
the listing of all objects. Brokers may run at the same time: a segment that is missing is looked up again in the newest
manifest before it is reported.

It does not read the journals of topics and groups; `tidelog bucket verify` does.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from tidelog.spark_connector.jobs.job import Facts, JobKind, Outcome
from tidelog.spark_connector.jobs.segment_checks import check_segments
from tidelog.spark_connector.jobs.store_option import add_store_option
from tidelog.storage.bucket.finding import Finding
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.stores.arrow_files import arrow_files

TASK_BYTES = 512 << 20
"""A task checks about this many bytes."""
SEGMENTS_PER_TASK_MAX = 1_000


class Verify:
    """See `job.Job`."""

    def __init__(self, spark: SparkSession, store: str) -> None:
        self._spark = spark
        self._store = store
        self._tasks: Sequence[Sequence[TopicSegment]] = ()

    def plan(self) -> Facts:
        # Imported here: other jobs run on drivers that lack what the walk needs.
        from tidelog.spark_connector.jobs.bucket_walk import listed_segments

        self._tasks = tasks_of(asyncio.run(listed_segments(self._store)))
        return self._facts

    def run(self) -> Outcome:
        from tidelog.spark_connector.jobs.bucket_walk import check_rest

        checks = self._spark.sparkContext.parallelize(self._tasks, max(1, len(self._tasks)))
        store = self._store
        found = checks.flatMap(lambda segments: check_segments(store, segments)).collect()
        damaged = [finding for finding in found if isinstance(finding, Finding)]
        gone = [segment for segment in found if isinstance(segment, TopicSegment)]
        rest, summary = asyncio.run(check_rest(store, gone))
        errors = summary.errors + len(damaged)
        facts = {**self._facts, "objects": summary.objects, "errors": errors, "orphans": summary.orphans}
        return Outcome(facts, tuple(map(_line, (*damaged, *rest))), sound=not errors)

    @property
    def _facts(self) -> Facts:
        segments = [segment for task in self._tasks for segment in task]
        return {
            "store": self._store,
            "segments": len(segments),
            "segment_bytes": sum(segment.size_bytes for segment in segments),
            "tasks": len(self._tasks),
        }


def tasks_of(segments: Iterable[TopicSegment]) -> list[list[TopicSegment]]:
    """Segments in order, `TASK_BYTES` in each task."""
    tasks: list[list[TopicSegment]] = []
    size_bytes = TASK_BYTES
    for segment in segments:
        if size_bytes >= TASK_BYTES or len(tasks[-1]) >= SEGMENTS_PER_TASK_MAX:
            tasks.append([])
            size_bytes = 0
        tasks[-1].append(segment)
        size_bytes += segment.size_bytes
    return tasks


def _line(finding: Finding) -> str:
    return f"{finding.severity.value}: {finding.key}: {finding.text}"


def _add_options(parser: ArgumentParser) -> None:
    add_store_option(parser)


def _open(spark: SparkSession, given: Namespace) -> Verify:
    arrow_files(given.store)
    return Verify(spark, given.store)


VERIFY = JobKind("verify", "check every byte of a bucket", _add_options, _open)
