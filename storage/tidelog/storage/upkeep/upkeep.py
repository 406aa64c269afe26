"""Looks after a topic in a shard: asks each task whether something is due, and runs it, one version a step.

    tasks in order: expire, compact, merge       expired segments are neither compacted nor merged first

After every version all tasks are asked again, because each changes the manifest for the others. If two workers look
after one shard, the slower one finds a version that it did not make (`Conflict`), and starts over from that. Garbage
and old versions belong to the whole shard: `collect`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.rationing import ThrottledObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.retention import ExpireTask
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, UpkeepRules, always_idle
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.task import TopicInShard, UpkeepTask

CONFLICTS_MAX = 8
ASK_AGAIN_MS = 60_000
"""After this time a task is asked again that was due and then found nothing to do."""


@dataclass(frozen=True)
class Step:
    """The result of one step: the newest `manifest`, in which the topic's list was read, whether this step `appended`
    it, and when something of the topic is due (as `UpkeepTask.due_at_ms`)."""

    manifest: ShardManifest
    appended: bool
    due_at_ms: int | None


class Upkeep:
    """`tasks` by priority. Topics and shards may be tended side by side, each by one caller at a time."""

    def __init__(self, tasks: Sequence[UpkeepTask], runtime: Runtime) -> None:
        self._tasks = tuple(tasks)
        self._clock = runtime.clock

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules) -> int | None:
        """When something is due; `now` or earlier means now, None means not before another version changes the topic.
        Pure except for the clock."""
        now_ms = self._clock.now_ms()
        return _earliest(*(task.due_at_ms(topic, rules, now_ms) for task in self._tasks))

    async def step(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> Step:
        """Append at most one version: of the first task that is due and has something to do. One HEAD if nothing is due
        and the newest version is known. Raises `Conflict` (other workers kept being faster), `Unavailable`, `Corrupt`;
        running again is always right."""
        for _ in range(CONFLICTS_MAX - 1):
            try:
                return await self._step(place, log, rules)
            except Conflict:
                continue  # another worker was faster: start over from its version
        return await self._step(place, log, rules)

    async def _step(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> Step:
        manifest = await log.with_lists(await log.newest(), [place.topic_id])
        if place.topic_id not in manifest.topics:
            return Step(manifest, False, None)
        topic, due_at_ms = TopicInShard(place, manifest), None
        for task in self._tasks:
            now_ms = self._clock.now_ms()
            at_ms = task.due_at_ms(topic, rules, now_ms)
            if at_ms is not None and at_ms <= now_ms:
                if appended := await task.run(place, log, rules):
                    return Step(appended, True, self.due_at_ms(TopicInShard(place, appended), rules))
                at_ms = now_ms + ASK_AGAIN_MS
            due_at_ms = _earliest(due_at_ms, at_ms)
        return Step(manifest, False, due_at_ms)


def upkeep_store(store: ObjectStore, runtime: Runtime, limits: UpkeepLimits) -> ObjectStore:
    """`store`, limited to `limits.bandwidth_bytes` per second."""
    return ThrottledObjectStore(store, runtime, limits.bandwidth_bytes) if limits.bandwidth_bytes else store


def upkeep_tasks(
    store: ObjectStore,
    runtime: Runtime,
    limits: UpkeepLimits,
    executor: Executor | None,
    spill_folder: Path,
    *,
    load: Callable[[], Load] = always_idle,
) -> Sequence[UpkeepTask]:
    """Expire, compact, merge. `executor` runs the computations (None: the event loop's default); `spill_folder` holds
    the data that does not fit in memory; `load`: by which merges decide what can wait, and how well they compress."""
    rewriter = Rewriter(store, runtime, limits, executor, spill_folder)
    return ExpireTask(runtime), CompactTask(rewriter), MergeTask(rewriter, load=load)


def _earliest(*times_ms: int | None) -> int | None:
    return min((at_ms for at_ms in times_ms if at_ms is not None), default=None)
