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
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

from pyspark.sql import SparkSession

from tidelog.spark_connector.arrow_reads import ArrowReads
from tidelog.spark_connector.jobs.job import Facts, JobKind, Outcome
from tidelog.storage.bucket.finding import UNREADABLE, Finding, Summary, unreadable
from tidelog.storage.bucket.listing import shards_in
from tidelog.storage.bucket.segment_reading import check_segment
from tidelog.storage.bucket.shard_look import ShardLooks
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import NotFound
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.arrow_files import arrow_files
from tidelog.storage.stores.opening import open_store
from tidelog.storage.stores.retrying import RetryingObjectStore

TASK_BYTES = 512 << 20
"""A task checks about this many bytes."""
SEGMENTS_PER_TASK_MAX = 1_000
HARM = "restore it from a copy of the bucket, or run `tidelog bucket repair`"


class Verify:
    """See `job.Job`."""

    def __init__(self, spark: SparkSession, store: str) -> None:
        self._spark = spark
        self._store = store
        self._tasks: Sequence[Sequence[TopicSegment]] = ()

    def plan(self) -> Facts:
        self._tasks = tasks_of(asyncio.run(_listed(self._store)))
        return self._facts

    def run(self) -> Outcome:
        checks = self._spark.sparkContext.parallelize(self._tasks, max(1, len(self._tasks)))
        store = self._store
        found = checks.flatMap(lambda segments: check_segments(store, segments)).collect()
        damaged = [finding for finding in found if isinstance(finding, Finding)]
        gone = [segment for segment in found if isinstance(segment, TopicSegment)]
        rest, summary = asyncio.run(_rest(store, gone))
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


def check_segments(store: str, segments: Sequence[TopicSegment]) -> Iterator[Finding | TopicSegment]:
    """What is wrong with them; of those that are missing, the segment itself."""
    reads = ArrowReads(store)
    for segment in segments:
        try:
            asyncio.run(check_segment(reads, segment))
        except UNREADABLE as fault:
            yield unreadable(fault, segment.size_bytes, harm=HARM)
        except NotFound:
            yield segment


async def _listed(store: str) -> list[TopicSegment]:
    """All segments that the manifests name, in the order of their keys. Those of a manifest that cannot be read are
    left out; the walk of the rest reports it."""
    async with _opened(store) as bucket:
        looks = ShardLooks(bucket, Runtime())
        found: list[TopicSegment] = []
        for shard in sorted(await shards_in(bucket)):
            await looks(shard).refresh()
        for place in looks.places():
            with suppress(*UNREADABLE):
                if topic := await looks(place.shard).topic(place.topic_id):
                    found += [segment for key in topic.keys if (segment := topic.segment(key))]
        return sorted(found, key=lambda segment: segment.key)


async def _rest(store: str, gone: Sequence[TopicSegment]) -> tuple[list[Finding], Summary]:
    """The findings about everything but the bytes of segments. The walk also reports missing segments. Those in `gone`
    that exist after all, because the store was away for a moment, are read now."""
    async with _opened(store) as bucket:
        walk = BucketVerification(bucket, deep=True, reads_segments=False)
        found = [finding async for finding in walk.findings()]
        for segment in gone:
            try:
                await check_segment(bucket, segment)
            except UNREADABLE as fault:
                found.append(unreadable(fault, segment.size_bytes, harm=HARM))
            except NotFound:
                pass  # merged or deleted since, or among the findings
        return found, walk.summary


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[ObjectStore]:
    runtime = Runtime()
    store = RetryingObjectStore(open_store(url, runtime=runtime), runtime)
    try:
        yield store
    finally:
        await store.aclose()


def _line(finding: Finding) -> str:
    return f"{finding.severity.value}: {finding.key}: {finding.text}"


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        required=True,
        metavar="URL",
        help="the bucket as all executors reach it: s3://BUCKET/PREFIX, or file:///PATH on a shared disk",
    )


def _open(spark: SparkSession, given: Namespace) -> Verify:
    arrow_files(given.store)
    return Verify(spark, given.store)


VERIFY = JobKind("verify", "check every byte of a bucket", _add_options, _open)
