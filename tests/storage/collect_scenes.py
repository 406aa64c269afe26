"""A shard with objects for its segments, versions of every kind, and collectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.storage.archive_scenes import ManualClock, keys
from tests.storage.shard_histories import SHARD, TOPIC_ID, TopicHistory, block_fault

from tidelog.storage.layout import TOPICS_PREFIX, manifests_prefix, shard_history_prefix
from tidelog.storage.manifests.shard_chain import GENESIS, Step
from tidelog.storage.manifests.shard_history import ShardHistory
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange, step_of
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.upkeep.collect import Collector, Graces

GRACE_S = 60.0
BLOCK_VERSIONS = 4


@dataclass
class Worker:
    """A collector like that of a new process, which works through `store`."""

    store: ObjectStore
    clock: ManualClock
    graces: Graces = lambda _: 0
    block_versions: int = BLOCK_VERSIONS

    def __post_init__(self) -> None:
        runtime = Runtime(self.clock, SeededEntropy(0))
        self.collector = Collector(self.store, runtime, GRACE_S, self.graces, block_versions=self.block_versions)
        self.log = ShardLog(self.store, SHARD, runtime)

    async def due_in_ms(self) -> int | None:
        now_ms = self.clock.now_ms()
        due_at_ms = self.collector.due_at_ms(await self.log.latest(), now_ms)
        return None if due_at_ms is None else due_at_ms - now_ms

    async def run(self) -> ShardManifest | None:
        return await self.collector.run(self.log)

    async def see_wait_and_run(self) -> ShardManifest | None:
        await self.run()
        self.clock.now_s += GRACE_S
        return await self.run()


@dataclass
class CollectScene:
    """Versions are appended from a seed; each segment that they add gets an object of one byte."""

    store: ObjectStore
    seed: int = 0
    clock: ManualClock = field(default_factory=ManualClock)
    heads: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = TopicHistory(Random(self.seed))
        self.log = ShardLog(self.store, SHARD, Runtime(self.clock, SeededEntropy(self.seed + 1)))

    async def grow(self, versions: int, kinds: Sequence[ChangeKind] = ()) -> ShardManifest:
        for _ in range(versions):
            self.history.manifest = await self.latest(self.log)
            draw = self.history.random
            kind = draw.choice(kinds or (*[ChangeKind.ARCHIVE] * 3, ChangeKind.MERGE, ChangeKind.EXPIRE))
            made = {ChangeKind.MERGE: self.history.merged, ChangeKind.EXPIRE: self.history.expired}
            newest = await self.append(made.get(kind, self.history.archived)())
        return newest

    async def append(self, change: ManifestChange) -> ShardManifest:
        for topic in change.topics.values():
            for segment in topic.added:
                await self.store.put(segment.key, b"x")
        appended = await self.log.append(change)
        self.heads[appended.version] = appended.head
        return appended

    async def remove_segment(self, topic_id: str) -> str:
        """Two versions: another topic gets a segment, and loses it. Returns its key."""
        key = f"topics/other/{topic_id}/{SHARD:04d}-{len(self.heads):032x}.parquet"
        segment = TopicSegment(key, 0, 0, 1, "5" * 64, 0, 0, 0, (SegmentSpan(0, 0, 0, 1, 1),))
        await self.latest(self.log)
        for change in (
            TopicChange("other", added=(segment,), partitions={0: ColdState(0, 1)}),
            TopicChange("other", removed=(key,), partitions={0: ColdState(1, 1)}),
        ):
            kind = ChangeKind.EXPIRE if change.removed else ChangeKind.ARCHIVE
            await self.append(ManifestChange(kind, {topic_id: change}))
        return key

    def worker(self, store: ObjectStore | None = None, graces: Graces = lambda _: 0) -> Worker:
        return Worker(store or self.store, self.clock, graces)

    async def latest(self, log: ShardLog | None = None) -> ShardManifest:
        """The newest version with all lists; by default as a new process reads it."""
        log = log or ShardLog(self.store, SHARD, Runtime())
        newest = await log.latest()
        return await log.with_lists(newest, newest.topics)

    async def objects(self) -> set[str]:
        """The segments and lists that exist."""
        lists = await keys(self.store, f"{manifests_prefix(SHARD)}lists/")
        return {*await keys(self.store, TOPICS_PREFIX), *lists}

    async def needed(self) -> set[str]:
        """The segments and lists that the newest version names, garbage apart."""
        topics = (await self.latest()).topics.values()
        lists = {topic.stored.key for topic in topics if topic.stored}
        return lists | {segment.key for topic in topics for segment in topic.segments}

    async def versions(self) -> list[int]:
        return [version async for version in self.log.versions()]

    async def blocks(self) -> list[str]:
        prefix = shard_history_prefix(SHARD)
        return [key.removeprefix(prefix) for key in await keys(self.store, prefix)]

    async def check(self) -> None:
        """Check that no live object is lost, that no object is forgotten, and that the history, followed from its
        beginning, ends with the segments that the newest version lists."""
        newest, there, needed = await self.latest(), await self.objects(), await self.needed()
        assert needed <= there <= needed | {garbage.key for garbage in newest.garbage}
        steps = await stored_steps(self.store, self.log)
        assert (steps[-1].version, steps[-1].head) == (newest.version, newest.head)
        assert {version: steps[version].head for version in self.heads} == self.heads
        assert replayed(steps, TOPIC_ID) == Counter(each.sha256 for each in newest.topics[TOPIC_ID].segments)


async def stored_steps(store: ObjectStore, log: ShardLog) -> list[Step]:
    """The steps of the history, which must follow from each other: first from blocks, then from versions."""
    history, steps, head = ShardHistory(store, log.shard), list[Step](), GENESIS
    for first, last in await history.blocks():
        block = await history.read(first, last)
        assert (block_fault(block), block.previous_head, first) == (None, head, len(steps))
        steps += block.steps
        head = steps[-1].head
    async for version in log.versions():
        if version >= len(steps):
            manifest = await log.read(version)
            assert (manifest.previous_head, version) == (head, len(steps))
            steps.append(step_of(manifest))
            head = manifest.head
    return steps


def replayed(steps: Sequence[Step], topic_id: str) -> Counter[str]:
    """The segments that are left of a topic after `steps`."""
    segments = Counter[str]()
    for step in steps:
        if changed := step.recorded.topics.get(topic_id):
            assert Counter(changed.removed) <= segments
            segments = segments - Counter(changed.removed) + Counter(changed.added)
    return segments
