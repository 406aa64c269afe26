"""A bucket in which everything happens: appends, archiving, retention, compaction, merging, deletion of garbage, of old
versions and of entries."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from tests.storage.archive_scenes import GRACE_S, TOPIC_NAMES, Scene, archiver_of, small_scene
from tests.storage.record_tables import SHOP, WEB, WEB_1
from tests.storage.tending import tend

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.rules import UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.upkeep import Upkeep, upkeep_tasks

RULES = {
    WEB.topic_id: UpkeepRules(retention_ms=-1, retention_bytes=1_000, segment_ms=1, grace_ms=0),
    SHOP.topic_id: UpkeepRules(deletes=False, compacts=True, segment_ms=1, grace_ms=0, min_cleanable_dirty_ratio=0.0),
}


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
        self._upkeep = Upkeep(upkeep_tasks(store, runtime, limits, None, folder), runtime)
        self._collector = Collector(store, runtime, GRACE_S, lambda _: 0, block_versions=2)
        self._log = ShardLog(store, scene.shard, runtime)
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
            await self._tend()
            self.scene.clock.now_s += GRACE_S
            await self.archiver.collect()
            await self._tend()
            await self.scene.append({WEB: 1}, epoch=2)

    async def _tend(self) -> None:
        for topic_id, rules in RULES.items():
            place = SegmentPlace(TOPIC_NAMES[topic_id], topic_id, self.scene.shard)
            await tend(self._upkeep, place, self._log, rules)
        with suppress(Conflict):
            await self._collector.run(self._log)
