"""A bucket with orphans whose store has its own clock, and sweeps of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from tests.storage.archive_scenes import ManualClock, Scene, archiver_of, manifest_of, small_scene
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import WEB

from tidelog.storage.bucket.sweep.bucket_sweep import DAY_MS, BucketSweep, SweepSettings
from tidelog.storage.bucket.sweep.sweep_report import Stray
from tidelog.storage.layout import shard_segment_key
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_upload import EncodedSegment, ShardUpload
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

DAY_S = DAY_MS / 1_000
NO_GRACE = SweepSettings(grace_ms=0, delete=True)


class Bucket:
    """A bucket whose store has its own clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(10_000_000.0)
        self.store = MemoryObjectStore(self.clock)

    async def archived(self) -> Scene:
        scene = await small_scene(self.store)
        await archiver_of(scene, self.store).run_once()
        return scene

    async def orphan(self, segment_id: str = "cd") -> str:
        """Make an upload that no manifest names, of records that are archived."""
        return await orphan_in(self.store, segment_id)


async def orphan_in(store: ObjectStore, segment_id: str = "cd") -> str:
    """The first archived segment once more, under another id."""
    segment = next(iter((await manifest_of(store)).topics[WEB.topic_id].segments))
    key = shard_segment_key("web", WEB.topic_id, 0, segment_id * 16)
    await store.create(key, (await store.get(segment.key)).data)
    return key


def sweep_of(
    store: ObjectStore, settings: SweepSettings, topics: SaidTopics | None = None, seed: int = 9
) -> BucketSweep:
    clock = ManualClock(3.0)  # decades behind, which must not matter
    return BucketSweep(store, topics or SaidTopics(), Runtime(clock, SeededEntropy(seed)), settings)


async def swept(store: ObjectStore, settings: SweepSettings, topics: SaidTopics | None = None) -> list[Stray]:
    return [stray async for stray in sweep_of(store, settings, topics).strays()]


async def rewrite(scene: Scene, store: ObjectStore) -> None:
    """Put the segment of a topic under another id, as a merge or a compaction does."""
    log = ShardLog(store, 0, scene.runtime(seed=3))
    manifest = await log.with_lists(await log.latest(), [WEB.topic_id])
    (former,) = manifest.topics[WEB.topic_id].segments
    key = former.key.replace(former.key.split("-")[-1], f"{'9a' * 16}.parquet")
    body = (await store.get(former.key)).data
    made = EncodedSegment(WEB.topic_id, replace(former, key=key, level=1), body)

    def successor(latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
        change = TopicChange("web", removed=(former.key,), added=tuple(added))
        return ManifestChange(ChangeKind.MERGE, {WEB.topic_id: change})

    await ShardUpload(store, scene.runtime(seed=3), 900.0).append(log, [made], successor)
