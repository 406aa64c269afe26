"""A second worker on a broker's bucket, with a clock of its own: it merges a topic, and deletes the replaced segments
as soon as a test wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.storage.archive_scenes import GRACE_S, ManualClock

from tidelog.storage.manifests.segment_list import SegmentList
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.rules import DAY_MS, UpkeepLimits, UpkeepRules
from tidelog.storage.upkeep.run_rewrite import Rewriter

AT_ONCE = UpkeepRules(segment_ms=1)
"""All runs become one final run."""
LATER_S = 4e9
"""In the year 2096, so that every segment of a test has been archived long before."""


@dataclass
class UpkeepWorker:
    """Works on one topic in shard 0 of the store in the folder `root`."""

    root: Path
    topic: str
    topic_id: str
    clock: ManualClock = field(default_factory=lambda: ManualClock(LATER_S))

    def __post_init__(self) -> None:
        self._runtime = Runtime(self.clock, SeededEntropy(7))
        self._store = LocalObjectStore(self.root, self._runtime)
        self._log = ShardLog(self._store, 0, self._runtime)

    async def segments(self) -> SegmentList:
        """Those that the newest manifest lists."""
        manifest = await self._log.with_lists(await self._log.latest(), [self.topic_id])
        return manifest.topics[self.topic_id].segments

    async def merge(self, rules: UpkeepRules = AT_ONCE) -> None:
        """One merge. The replaced segments stay in the bucket."""
        limits = UpkeepLimits(grace_s=GRACE_S)
        task = MergeTask(Rewriter(self._store, self._runtime, limits, None, self.root / ".tidelog"))
        assert await task.run(SegmentPlace(self.topic, self.topic_id, 0), self._log, rules), "nothing was merged"

    async def collect(self) -> None:
        """Let the default ``file.delete.delay.ms`` pass, and delete the replaced segments."""
        collector = Collector(self._store, self._runtime, GRACE_S, lambda _: DAY_MS)
        assert await collector.run(self._log) is None, "collected before the grace"
        self.clock.now_s += DAY_MS / 1_000
        assert await collector.run(self._log), "nothing was collected"
