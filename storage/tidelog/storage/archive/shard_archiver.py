"""Archives the write-ahead log of a shard: one segment for each topic and pass, and one version of its manifest.

    entries from the floor on ──▶ plan (topic_plan) ──▶ segments (segment_assembly) ──▶ upload ──▶ append a version

The version lists the segments, moves the cold ends of all partitions, and moves the floor. It is one create, so a crash
between any two requests leaves only segments that no manifest names.

**The entries are still part of the log when the version is appended.** The pass begins from a version, whose floor it
reads from. If its append of the next version succeeds, nobody has moved the floor meanwhile, and entries above the
floor are not deleted (inv. 6). If another worker appended a version (a merge, say), the same segments go into the
version after that, unless another archiver was faster with these records.

**Damage stops only the damaged object.** The pass skips lost entries and archives everything else. The floor stays
until nothing is damaged (`archive_damage`), so the WAL grows meanwhile, and `damage` has the reason.

Deletion of entries waits for a grace, counted on this process's monotonic clock from when it first saw the floor there.
Readers may hold plans over WAL entries, and stalled uploads may be in progress. No other clock is safe: a wall clock,
or the store's, may be wrong by more than the grace, and no durable record says when the floor moved. So a restarted
process waits a full grace again, which costs some storage and never a record (inv. 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec, TypeVar

from tidelog.storage.archive.partition_states import ProducerLimits, state_after
from tidelog.storage.archive.segment_assembly import SegmentFacts, assembled
from tidelog.storage.archive.topic_plan import TopicPlan, plan_topics
from tidelog.storage.errors import Conflict
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, TopicChange
from tidelog.storage.manifests.shard_upload import ShardUpload
from tidelog.storage.manifests.shard_values import EMPTY, ChangeKind, ColdState, TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_run import read_run, width_after

P = ParamSpec("P")
T = TypeVar("T")

TopicNames = Callable[[str], str | None]
"""Maps a topic's id to its name; None once the topic is deleted. It must know every topic that has records."""


@dataclass(frozen=True)
class ArchiverSettings:
    """`batch_bytes`: stored bytes of the entries that a pass holds in memory (at least one entry, however large). It
    holds its segments, too, and these take as much."""

    batch_bytes: int = 64 * 1024 * 1024
    grace_s: float = 900.0
    producers: ProducerLimits = field(default_factory=ProducerLimits)


@dataclass(frozen=True)
class PassReport:
    """The result of a pass: the version that it appended, and its segments by topic id."""

    manifest: ShardManifest
    segments: Mapping[str, TopicSegment]
    entries: int

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments.values())

    @property
    def stored_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments.values())


class ShardArchiver:
    """Archives `wal` into the manifest of its shard. One pass at a time; other archivers may work on the same log.
    `executor` plans and encodes; None: the event loop's default."""

    def __init__(
        self,
        store: ObjectStore,
        wal: Wal,
        log: ShardLog,
        runtime: Runtime,
        topic_names: TopicNames,
        settings: ArchiverSettings | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._wal = wal
        self._log = log
        self._runtime = runtime
        self._topic_names = topic_names
        self._settings = settings or ArchiverSettings()
        self._executor = executor
        self._uploads = ShardUpload(store, runtime, self._settings.grace_s)
        self._width = 1

    async def run_once(self, up_to: int | None = None) -> PassReport | None:
        """One pass over the committed entries below `up_to`, the writer's next number; None: over all entries. Returns
        None if there are none. Raises `Unavailable`, `Conflict` (other archivers were faster) and `Corrupt`, naming the
        object; running again is always right."""
        manifest = self._log.known or await self._log.latest()
        entries = await read_run(
            self._wal,
            manifest.floor.number,
            up_to,
            self._settings.batch_bytes,
            self._executor,
            width=1 if up_to is None else self._width,
        )
        if not entries:
            return None
        self._width = width_after(entries)
        manifest = await self._log.with_lists(manifest, _topic_ids(entries))
        planned = await self._in_thread(plan_topics, entries, _states(manifest, entries))
        names = {plan.topic_id: name for plan in planned if (name := self._topic_names(plan.topic_id))}
        plans = [plan for plan in planned if plan.topic_id in names]
        last = entries[-1].header
        pass_ = _Pass(plans, Floor(last.seq + 1, last.epoch), manifest, names, self._settings.producers)
        places = [SegmentPlace(names[plan.topic_id], plan.topic_id, manifest.shard) for plan in plans]
        encoded = [
            await self._in_thread(assembled, plan, place, entries, self._facts(plan, manifest))
            for plan, place in zip(plans, places, strict=True)
        ]
        now_ms = self._runtime.clock.now_ms()
        appended = await self._uploads.append(self._log, encoded, partial(pass_.change, now_ms=now_ms))
        named = {each.topic_id: each.segment for each in encoded}
        return PassReport(appended, named, len(entries))

    def _facts(self, plan: TopicPlan, manifest: ShardManifest) -> SegmentFacts:
        topic = manifest.topics.get(plan.topic_id)
        run, now_ms = topic.next_run if topic else 0, self._runtime.clock.now_ms()
        return SegmentFacts(self._runtime.entropy.new_id(), run, now_ms)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))


@dataclass(frozen=True)
class _Pass:
    """The change that a pass makes, planned from the version `began`."""

    plans: Sequence[TopicPlan]
    floor: Floor
    began: ShardManifest
    names: Mapping[str, str]
    limits: ProducerLimits

    def change(self, latest: ShardManifest, added: Sequence[TopicSegment], *, now_ms: int) -> ManifestChange:
        """The change of `latest`. Raises `Conflict` if another archiver has archived the records."""
        if latest.floor != self.began.floor:
            raise Conflict(f"another archiver was faster: the floor is {latest.floor.number}")
        topics = {
            plan.topic_id: self._topic(plan, latest, segment, now_ms)
            for plan, segment in zip(self.plans, added, strict=True)
        }
        return ManifestChange(ChangeKind.ARCHIVE, topics, self.floor)

    def _topic(self, plan: TopicPlan, latest: ShardManifest, segment: TopicSegment, now_ms: int) -> TopicChange:
        states: dict[int, ColdState] = {}
        for number, part in plan.partitions.items():
            state = _state(latest, plan.topic_id, number)
            if state.cold_end != _state(self.began, plan.topic_id, number).cold_end:
                raise Conflict(f"another archiver was faster: {state.cold_end} is the cold end")
            states[number] = state_after(state, part, self.limits, now_ms)
        topic = latest.topics.get(plan.topic_id)
        placed = replace(segment, run=topic.next_run if topic else 0)
        return TopicChange(self.names[plan.topic_id], added=(placed,), partitions=states)


def _topic_ids(entries: Sequence[StoredEntry]) -> set[str]:
    return {span.topic_partition.topic_id for entry in entries for span in entry.header.spans}


def _states(manifest: ShardManifest, entries: Sequence[StoredEntry]) -> Mapping[TopicPartition, ColdState]:
    places = {span.topic_partition for entry in entries for span in entry.header.spans}
    return {place: _state(manifest, place.topic_id, place.partition) for place in places}


def _state(manifest: ShardManifest, topic_id: str, partition: int) -> ColdState:
    topic = manifest.topics.get(topic_id)
    return topic.partition(partition) if topic else EMPTY
