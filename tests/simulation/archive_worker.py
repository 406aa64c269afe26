"""A worker of the simulation: the product's archiver, upkeep and collector, in one process that shares a manifest.

Two workers may look after one shard at once. All timing of the product is by the clocks of the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation.batches import PARTITIONS, TOPICS, topic_id_of
from tests.simulation.truth import Truth
from tests.simulation.violation import SHARD, Violation
from tests.simulation.weather import Weather

from tidelog.storage.archive.archiver import Archiver, ArchiverSettings
from tidelog.storage.archive.pass_change import ProducerLimits
from tidelog.storage.errors import Conflict, Corrupt, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.log_starts import delete_records
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.retention import ExpireTask
from tidelog.storage.upkeep.rules import UpkeepLimits
from tidelog.storage.upkeep.run_rewrite import Rewriter
from tidelog.storage.upkeep.upkeep import Upkeep
from tidelog.storage.wal.wal import Wal

GRACE_S = 0.5
GRACE_MARGIN = 1.1
"""The grace is measured by a clock that may run fast."""
COLLECTED_GRACE_S = GRACE_S * GRACE_MARGIN
PAUSE_S_MAX = 0.25
UPKEEP_PAUSE_S_MAX = 0.6
DELETION_PAUSE_S_MAX = 2.0
PASS_BYTES = 8_000
"""An entry has about 2 kB, so a pass takes some four entries."""
BLOCK_VERSIONS = 2
NEVER_MS = 1 << 50


@dataclass(frozen=True)
class WorkerClasses:
    """The product's classes, or mutations of them."""

    archiver: type[Archiver] = Archiver
    merge: type[MergeTask] = MergeTask
    expire: type[ExpireTask] = ExpireTask
    collector: type[Collector] = Collector


class ArchiveWorker:
    """`weather` has the rules of all topics, and whether workers do more than to archive. `end`: the next number of the
    process's writer, if it leads."""

    def __init__(
        self,
        classes: WorkerClasses,
        store: ObjectStore,
        runtime: Runtime,
        wal: Wal,
        log: ShardLog,
        weather: Weather,
        truth: Truth,
        end: Callable[[], int | None],
    ) -> None:
        producers = ProducerLimits(expiration_ms=NEVER_MS)
        settings = ArchiverSettings(PASS_BYTES, COLLECTED_GRACE_S, producers)
        limits = UpkeepLimits(grace_s=COLLECTED_GRACE_S)
        spills = Path(tempfile.gettempdir())
        self._archiver = classes.archiver(store, wal, log, runtime, TOPICS.get, settings)
        rewriter = Rewriter(store, runtime, limits, None, spills)
        self._upkeep = Upkeep([classes.expire(runtime), classes.merge(rewriter)], runtime)
        self._collector = classes.collector(
            store, runtime, COLLECTED_GRACE_S, lambda topic_id: weather.rules.grace_ms, block_versions=BLOCK_VERSIONS
        )
        self._runtime = runtime
        self._log = log
        self._rules = weather.rules
        self._truth = truth
        self._end = end
        self._tends = weather.upkeep

    def loops(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Archive and truncate; expire and merge; delete garbage and old versions: each without end."""
        archiving = self._repeat(self._archive_once, PAUSE_S_MAX)
        if not self._tends:
            return (archiving,)
        tending = self._repeat(self._upkeep_once, UPKEEP_PAUSE_S_MAX)
        return archiving, tending, self._repeat(self._collect_once, UPKEEP_PAUSE_S_MAX)

    async def delete_records(self) -> None:
        """Delete records on request without end."""
        await self._repeat(self._delete_once, DELETION_PAUSE_S_MAX)

    async def _repeat(self, work: Callable[[], Awaitable[object]], pause_s_max: float) -> None:
        require = self._truth.rules.require
        while True:
            await self._runtime.clock.sleep(self._runtime.entropy.uniform(0, pause_s_max))
            try:
                await work()
            except (Conflict, Unavailable):
                continue
            except Violation:
                raise
            except Corrupt as fault:
                require(False, "no damage", fault)
            except Exception as error:
                require(False, "error", repr(error))

    async def _archive_once(self) -> None:
        await self._archiver.run_once(self._end())
        fault = self._archiver.damage.first_fault()
        self._truth.rules.require(fault is None, "no damage", fault)
        await self._archiver.collect()

    async def _upkeep_once(self) -> None:
        for topic_id, topic in TOPICS.items():
            await self._upkeep.step(SegmentPlace(topic, topic_id, SHARD), self._log, self._rules)

    async def _collect_once(self) -> None:
        manifest = await self._log.newest()
        now_ms = self._runtime.clock.now_ms()
        due_ms = self._collector.due_at_ms(manifest, now_ms)
        if due_ms is not None and due_ms <= now_ms:
            await self._collector.run(self._log)

    async def _delete_once(self) -> None:
        partition = int(self._runtime.entropy.uniform(0, PARTITIONS))
        end = self._truth.acknowledged_ends().get(partition, 0)
        before_offset = int(self._runtime.entropy.uniform(0, end + 1))
        self._truth.archive.deletion_asked(partition, before_offset)
        topic_id = topic_id_of(partition)
        place = SegmentPlace(TOPICS[topic_id], topic_id, SHARD)
        await delete_records(self._log, place, partition, before_offset)
