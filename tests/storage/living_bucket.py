"""A bucket in which everything happens: appends, archiving, retention, compaction, merging, deletion of garbage, of old
versions and of entries."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.storage.archive_scenes import GRACE_S, TOPIC_NAMES, Scene, archiver_of, small_scene
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.errors import Conflict
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.collect import CollectTask
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.retention import ExpireTask
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.task import Place, UpkeepTask

RULES = {
    WEB: UpkeepRules(retention_ms=-1, retention_bytes=1_000, segment_ms=1),
    WEB_1: UpkeepRules(retention_ms=-1, segment_ms=1),
    SHOP: UpkeepRules(deletes=False, compacts=True, segment_ms=1, min_cleanable_dirty_ratio=0.0),
}
STEPS_MAX = 10


class NamedStore(MemoryObjectStore):
    """Two memory stores with different names, so that they count as different buckets."""

    url = "memory:source"


class LivingBucket:
    """Each call of `goes_on` does some of all this work; at its end a grace is over. Old versions are collected two at
    a time."""

    def __init__(self, store: ObjectStore, scene: Scene, folder: Path) -> None:
        self.store = store
        self.scene = scene
        self.archiver = archiver_of(scene, store, seed=77)
        runtime, limits = scene.runtime(78), UpkeepLimits(grace_s=GRACE_S)
        self._tasks: tuple[UpkeepTask, ...] = (
            ExpireTask(runtime),
            CompactTask(store, runtime, limits, None, folder),
            MergeTask(store, runtime, limits, None, folder),
            CollectTask(store, runtime, GRACE_S, block_versions=2),
        )
        self._logs = {place: ManifestLog(store, TOPIC_NAMES[place.topic_id], place, scene.clock) for place in RULES}
        self._turn = asyncio.Lock()

    @classmethod
    async def made(cls, store: ObjectStore, folder: Path) -> LivingBucket:
        """A bucket that already has a history."""
        bucket = cls(store, await small_scene(store), folder)
        for _ in range(3):
            await bucket.goes_on()
        return bucket

    async def goes_on(self) -> None:
        async with self._turn:
            await self.scene.append({WEB: 3, SHOP: 2, WEB_1: 1}, epoch=2)
            await self.archiver.run_once()
            for place in RULES:
                await self._tend(place)
            self.scene.clock.now_s += GRACE_S
            await self.archiver.collect()
            for place in RULES:
                await self._tend(place)
            await self.scene.append({WEB: 1}, epoch=2)

    async def _tend(self, place: TopicPartition) -> None:
        log, rules = self._logs[place], RULES[place]
        for task in self._tasks:
            for _ in range(STEPS_MAX):
                due_ms = task.due_at_ms(await log.latest(), rules, self.scene.clock.now_ms())
                if due_ms is None or due_ms > self.scene.clock.now_ms():
                    break
                try:
                    await task.run(Place(TOPIC_NAMES[place.topic_id], place), log, rules)
                except Conflict:
                    continue
