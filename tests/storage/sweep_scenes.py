"""A bucket with orphans whose store has its own clock, and sweeps of it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.storage.archive_scenes import (
    ManualClock,
    Scene,
    archiver_of,
    small_scene,
)
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import WEB, record_table

from tidelog.storage.bucket.sweep import DAY_MS, BucketSweep, Stray, SweepSettings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.segment_codec import encode_segment
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

    async def orphan(self, offsets: Sequence[int] = (0, 1), segment_id: str = "cd") -> str:
        """Make an upload without a manifest."""
        made = encode_segment("web", WEB, record_table(offsets), segment_id * 16)
        await self.store.create(made.segment.key, made.body)
        return made.segment.key


def sweep_of(
    store: ObjectStore, settings: SweepSettings, topics: SaidTopics | None = None, seed: int = 9
) -> BucketSweep:
    clock = ManualClock(3.0)  # decades behind, which must not matter
    return BucketSweep(store, topics or SaidTopics(), Runtime(clock, SeededEntropy(seed)), settings)


async def swept(store: ObjectStore, settings: SweepSettings, topics: SaidTopics | None = None) -> list[Stray]:
    return [stray async for stray in sweep_of(store, settings, topics).strays()]
