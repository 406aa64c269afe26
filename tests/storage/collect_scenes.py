"""A partition with objects for its segments, versions of every kind, and collectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.storage.archive_scenes import ManualClock, keys
from tests.storage.manifest_histories import TOPIC, History, history_of
from tests.storage.record_tables import WEB

from tidelog.storage.bucket.manifest_replay import Replay, steps_up_to
from tidelog.storage.layout import history_prefix, segment_prefix
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.upkeep.collect import CollectTask
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.task import Place

GRACE_S = 60.0
BLOCK_VERSIONS = 4
PLACE = Place(TOPIC, WEB)
RULES = UpkeepRules()


@dataclass
class Collector:
    """A collector like that of a new process, which works through `store`."""

    store: ObjectStore
    clock: ManualClock
    block_versions: int = BLOCK_VERSIONS

    def __post_init__(self) -> None:
        runtime = Runtime(self.clock, SeededEntropy(0))
        self.task = CollectTask(self.store, runtime, GRACE_S, block_versions=self.block_versions)
        self.log = ManifestLog(self.store, TOPIC, WEB, self.clock)

    async def due_in_ms(self) -> int | None:
        now_ms = self.clock.now_ms()
        due_at_ms = self.task.due_at_ms(await self.log.latest(), RULES, now_ms)
        return None if due_at_ms is None else due_at_ms - now_ms

    async def run(self) -> Manifest | None:
        return await self.task.run(PLACE, self.log, RULES)

    async def see_wait_and_run(self) -> Manifest | None:
        await self.run()
        self.clock.now_s += GRACE_S
        return await self.run()


@dataclass
class CollectScene:
    """`history` grows; each segment that it lists gets an object of one byte."""

    store: ObjectStore
    seed: int = 0
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.history: History = history_of(self.store, self.seed)

    async def grow(self, versions: int, kinds: Sequence[ChangeKind] = ()) -> Manifest:
        for _ in range(versions):
            manifest = await self.history.run(1, kinds)
            for segment in manifest.segments:
                await self.store.put(segment.key, b"x")
        return manifest

    def collector(self, store: ObjectStore | None = None) -> Collector:
        return Collector(store or self.store, self.clock)

    async def latest(self) -> Manifest:
        return await ManifestLog(self.store, TOPIC, WEB).latest()

    async def segment_objects(self) -> set[str]:
        return set(await keys(self.store, segment_prefix(TOPIC, WEB.topic_id, WEB.partition)))

    async def versions(self) -> list[int]:
        return [version async for version in ManifestLog(self.store, TOPIC, WEB).versions()]

    async def blocks(self) -> list[str]:
        prefix = history_prefix(TOPIC, WEB.topic_id, WEB.partition)
        return [key.removeprefix(prefix) for key in await keys(self.store, prefix)]

    async def check(self) -> None:
        """Check that no live object is lost, that no object is forgotten, and that the history can be followed from its
        beginning."""
        newest, last = await self.latest(), self.history.versions[-1]
        assert newest.segments == last.segments
        live, waiting = {s.key for s in newest.segments}, {g.key for g in newest.garbage}
        there = await self.segment_objects()
        assert live <= there <= live | waiting
        replay = Replay(WEB, {manifest.version: manifest.head for manifest in self.history.versions})
        async for _, step in steps_up_to(self.store, PLACE, newest.version):
            assert replay.take(step) is None
        assert replay.end_fault(newest) is None
        assert newest.base_version in [None, *await self.versions()]
