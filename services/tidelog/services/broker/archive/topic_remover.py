"""Takes deleted topics out of the manifests of shards, and ends their removal.

The leader of each shard appends one version that drops the topics that are gone. Their segments and lists are garbage
from then on, and the collector deletes them after the grace. The archiver skips their records in the WAL, and these are
deleted with their entries. A removal stays in the journal until no shard's manifest has the topic, so a crash only
delays it; the leader of the topic's first partition ends it.

A worker that stalled may still write a segment that no manifest names: an orphan, which the sweep deletes.

Hazard: a topic that this broker does not know may have been created by another broker a moment ago.
Defence: the manifest is read first, and then the journal up to its end. A topic is in the journal before its first
record is written, so a topic of that manifest that the journal lacks was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

LOOK_EVERY_S = 10.0
"""The least time between two looks whether all shards have dropped a topic: a LIST and a GET for each shard of it."""


class TopicRemover:
    """Raises `Unavailable`, `Corrupt`. Repeating a call is always safe."""

    def __init__(self, store: ObjectStore, journal: Journal, catalog: Catalog, runtime: Runtime) -> None:
        self._store = store
        self._journal = journal
        self._catalog = catalog
        self._runtime = runtime
        self._seen: dict[int, tuple[int, int]] = {}
        self._look_at_s: dict[str, float] = {}

    async def drop_deleted(self, led: LedShard) -> None:
        """Append a version without the topics that are gone. Costs no request unless the manifest or the topics have
        changed since the last call."""
        log = led.leader.partitions.log
        manifest = log.known
        if manifest is None and not any(led.shard in topic.shards for topic in self._catalog.removals()):
            return
        manifest = manifest or await log.latest()
        seen = manifest.version, self._catalog.revision
        if self._seen.get(led.shard) == seen:
            return
        if self._gone(manifest):
            await self._journal.catch_up()
            await self._drop(led, self._gone(manifest))
        self._seen[led.shard] = seen

    async def end_removals(self, leads: Callable[[int], bool]) -> None:
        """Take the topics that no shard has any more, and whose first partition is led here, off the journal's list."""
        removals = [topic for topic in self._catalog.removals() if leads(topic.shards[0])]
        now_s = self._runtime.clock.monotonic()
        self._look_at_s = {topic.topic_id: self._look_at_s.get(topic.topic_id, now_s) for topic in removals}
        for topic in removals:
            if now_s < self._look_at_s[topic.topic_id]:
                continue
            self._look_at_s[topic.topic_id] = now_s + LOOK_EVERY_S
            if not await self._is_somewhere(topic):
                await self._catalog.removed(topic)

    async def _drop(self, led: LedShard, gone: Sequence[str]) -> None:
        def drop(newest: ShardManifest) -> ManifestChange | None:
            there = tuple(topic_id for topic_id in gone if topic_id in newest.topics)
            return ManifestChange(ChangeKind.DELETE_TOPIC, dropped=there) if there else None

        await led.apply(await led.leader.partitions.log.change(gone, drop))

    async def _is_somewhere(self, topic: Topic) -> bool:
        """Whether the manifest of a shard has the topic."""
        for shard in sorted(set(topic.shards)):
            if topic.topic_id in (await ShardLog(self._store, shard, self._runtime).latest()).topics:
                return True
        return False

    def _gone(self, manifest: ShardManifest) -> tuple[str, ...]:
        return tuple(topic_id for topic_id in manifest.topics if self._catalog.with_id(topic_id) is None)
