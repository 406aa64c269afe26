"""``compact``: compacts a topic by key, and merges its segments, on a cluster.

    tidelog spark run compact --store s3://my-bucket/log --topic web

The driver plans each shard of the topic: a pass of compaction if the topic is compacted by key and has records that no
pass has seen, and otherwise one merge of all that is not final. Each task makes about one segment. At the end the
driver appends one version for each shard, so readers see all of a rewrite or nothing. Run it again to merge what it
compacted.

Archivers may run at the same time. If a broker or compactor merges the same segments meanwhile, the shard is left as it
made it, and the job says so.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tidelog.spark_connector.jobs.job import Facts, JobKind, Outcome
from tidelog.spark_connector.jobs.store_option import add_store_option
from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from tidelog.spark_connector.jobs.part_making import PartTask
    from tidelog.spark_connector.jobs.topic_rewrites import PlannedRewrite

MIB = 1 << 20
MEMORY_MIB_MIN = 64


class Compact:
    """See `job.Job`."""

    def __init__(self, spark: SparkSession, store: str, topic: str, memory_bytes: int) -> None:
        self._spark = spark
        self._store = store
        self._topic = topic
        self._memory_bytes = memory_bytes
        self._rewrites: list[PlannedRewrite] = []

    def plan(self) -> Facts:
        # Imported here: other jobs run on drivers that lack what this one needs.
        from tidelog.spark_connector.jobs.topic_rewrites import plan_rewrites

        self._rewrites = asyncio.run(plan_rewrites(self._store, self._topic, self._memory_bytes))
        return self._facts

    def run(self) -> Outcome:
        from tidelog.spark_connector.jobs.part_making import make_part
        from tidelog.spark_connector.jobs.topic_rewrites import append_version

        tasks = list(self._tasks())
        made = iter(self._spark.sparkContext.parallelize(tasks, max(1, len(tasks))).map(make_part).collect())
        outdone = segments = 0
        for found in self._rewrites:
            of_shard = [next(made) for _ in found.rewrite.parts]
            if asyncio.run(append_version(self._store, found, of_shard)):
                segments += sum(map(len, of_shard))
            else:
                outdone += 1
        return Outcome({**self._facts, "made_segments": segments, "shards_changed_by_others": outdone})

    def _tasks(self) -> Iterator[PartTask]:
        from tidelog.spark_connector.jobs.part_making import PartTask

        for found in self._rewrites:
            rewrite = found.rewrite
            for part in rewrite.parts:
                size_bytes, flavor = rewrite.rules.segment_bytes, rewrite.flavor
                yield PartTask(self._store, rewrite.place, part, flavor, rewrite.level, size_bytes, self._memory_bytes)

    @property
    def _facts(self) -> Facts:
        inputs = [segment for found in self._rewrites for segment in found.rewrite.inputs]
        return {
            "topic": self._topic,
            "store": self._store,
            "shards": len(self._rewrites),
            "input_segments": len(inputs),
            "input_bytes": sum(segment.size_bytes for segment in inputs),
            "tasks": sum(len(found.rewrite.parts) for found in self._rewrites),
        }


def _add_options(parser: ArgumentParser) -> None:
    add_store_option(parser)
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic")
    parser.add_argument(
        "--memory-mib", type=int, default=256, help="raw records that a task holds in memory (default: %(default)s)"
    )


def _open(spark: SparkSession, given: Namespace) -> Compact:
    if given.memory_mib < MEMORY_MIB_MIN:
        raise Invalid(f"--memory-mib {given.memory_mib}: give at least {MEMORY_MIB_MIN}", field="memory-mib")
    return Compact(spark, given.store, given.topic, given.memory_mib * MIB)


COMPACT = JobKind("compact", "compact a topic by key, and merge its segments", _add_options, _open)
