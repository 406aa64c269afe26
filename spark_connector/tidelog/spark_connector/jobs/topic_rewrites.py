"""The part of ``compact`` that runs on the driver: plans the rewrites of a topic, and appends their versions."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic, upkeep_rules
from tidelog.spark_connector.jobs.opened_bucket import opened_bucket
from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_upload import ShardUpload
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.rules import UpkeepLimits
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.whole_rewrite import WholeRewrite, planned


@dataclass(frozen=True)
class PlannedRewrite:
    """A rewrite in one shard, planned in the version `seen`."""

    rewrite: WholeRewrite
    seen: int


async def plan_rewrites(store: str, name: str, memory_bytes: int) -> list[PlannedRewrite]:
    """The rewrites of the topic `name`, at most one in each of its shards. Raises `NotFound`, `Corrupt`,
    `Unavailable`."""
    runtime = Runtime()
    async with opened_bucket(store) as bucket:
        topic = await _topic(bucket, runtime, name)
        with tempfile.TemporaryDirectory(prefix="tidelog-compact-") as folder:
            limits = UpkeepLimits(memory_bytes=memory_bytes)
            rewriter = Rewriter(bucket, runtime, limits, None, Path(folder))
            found = [await _planned(bucket, runtime, rewriter, topic, shard) for shard in sorted(set(topic.shards))]
    return [each for each in found if each]


async def append_version(store: str, found: PlannedRewrite, made: Sequence[Sequence[TopicSegment]]) -> bool:
    """Append the version with what was `made` of each part. False: another worker, or a sweep, was faster; nothing
    changed. Raises `Unavailable`."""
    runtime, place = Runtime(), found.rewrite.place
    async with opened_bucket(store) as bucket:
        uploads = ShardUpload(bucket, runtime, UpkeepLimits().grace_s)
        log = ShardLog(bucket, place.shard, runtime)
        try:
            await uploads.append_uploaded(log, place.topic_id, found.rewrite.successor(made), found.seen)
        except Conflict:
            return False
    return True


async def _topic(bucket: ObjectStore, runtime: Runtime, name: str) -> Topic:
    journal = Journal(bucket, runtime)
    catalog = Catalog(journal, runtime)
    await journal.open()
    return catalog.get(name)


async def _planned(
    bucket: ObjectStore, runtime: Runtime, rewriter: Rewriter, topic: Topic, shard: int
) -> PlannedRewrite | None:
    log = ShardLog(bucket, shard, runtime)
    manifest = await log.latest()
    if topic.topic_id not in manifest.topics:
        return None
    manifest = await log.with_lists(manifest, [topic.topic_id])
    place = SegmentPlace(topic.name, topic.topic_id, shard)
    rules, now_ms = upkeep_rules(topic.config), runtime.clock.now_ms()
    rewrite = await planned(rewriter, place, manifest, rules, now_ms)
    return PlannedRewrite(rewrite, manifest.version) if rewrite else None
