"""Archives the write-ahead log of a shard: one segment for each topic and pass, and one version of its manifest.

    entries from the floor on ──▶ plan (topic_plan) ──▶ segments (segment_assembly) ──▶ upload ──▶ append a version

The version lists the segments, moves the cold ends of all partitions, and moves the floor. It is one create, so a crash
between any two requests leaves only segments that no manifest names.

**The entries are still part of the log when the version is appended.** The pass plans with a version, and takes only
entries from its floor on. If its append of the next version succeeds, the floor is still the same, so none of these
entries was ever deleted (inv. 6), and none was created a second time by a stalled writer. If another worker appended a
version (a merge, say), the same segments go into the version after that, unless another archiver was faster with these
records.

**Damage stops only the damaged object.** The pass skips lost entries, leaves out topics and partitions that are stuck,
and archives everything else (`archive_damage`). The floor stays until nothing is damaged, so the WAL grows.

Deletion of entries waits for a grace, counted on this process's monotonic clock from when it first saw the floor there.
Readers may hold plans over WAL entries, and stalled uploads may be in progress. No other clock is safe: a wall clock,
or the store's, may be wrong by more than the grace, and no durable record says when the floor moved. So a restarted
process waits a full grace again, which costs some storage and never a record (inv. 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec, TypeVar

import pyarrow as pa

from tidelog.storage.archive.archive_damage import ArchiveDamage, Stuck
from tidelog.storage.archive.pass_change import PassChange, ProducerLimits
from tidelog.storage.archive.segment_assembly import SegmentFacts, assembled
from tidelog.storage.archive.topic_plan import TopicPlan, affordable, plan_topics
from tidelog.storage.archive.wal_cursor import WalCursor
from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import past_losses
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_upload import EncodedSegment, ShardUpload
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal import Wal

P = ParamSpec("P")
T = TypeVar("T")

TopicNames = Callable[[str], str | None]
"""Maps a topic's id to its name; None once the topic is deleted. It must know every topic that has records."""


@dataclass(frozen=True)
class ArchiverSettings:
    """`batch_bytes`: stored bytes of the entries that a pass holds in memory (at least one entry, however large). It
    holds its segments, too, and these take as much. `grace_s`: how long an entry stays after the floor has passed
    it."""

    batch_bytes: int = 64 * 1024 * 1024
    grace_s: float = 900.0
    producers: ProducerLimits = field(default_factory=ProducerLimits)


@dataclass(frozen=True)
class PassReport:
    """The result of a pass: the newest version, which has everything that it archived, and its segments by topic id.
    `entries`: how many it read."""

    manifest: ShardManifest
    segments: Mapping[str, TopicSegment]
    entries: int

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments.values())

    @property
    def raw_bytes(self) -> int:
        return sum(segment.raw_bytes for segment in self.segments.values())

    @property
    def stored_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments.values())


class Archiver:
    """Archives `wal` into the manifest of its shard, and deletes archived entries after the grace. One pass at a time;
    other archivers may work on the same log. `executor` plans and encodes; None: the event loop's default. `damage` has
    what cannot be archived, `collected` the number below which all entries were deleted."""

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
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._topic_names = topic_names
        self._settings = settings = settings or ArchiverSettings()
        self._executor = executor
        self._uploads = ShardUpload(store, runtime, settings.grace_s)
        self._floors_seen: list[tuple[int, float]] = []
        self.collected = 0
        self.damage = ArchiveDamage()
        self._cursor = WalCursor(wal, log, self.damage, self._clock, settings.batch_bytes, executor)

    @property
    def floor(self) -> int:
        """The floor, as this process last saw it."""
        return self._floors_seen[-1][0] if self._floors_seen else 0

    @property
    def position(self) -> int:
        """Everything below this entry is archived, except for `damage`. Without damage, this is the floor."""
        return self._cursor.position

    async def run_once(self, end: int | None = None) -> PassReport | None:
        """One pass over the committed entries below `end`, the writer's next number; None: over all entries. Returns
        None if there are none. `damage` then has the damaged objects. Raises `Unavailable`, `Conflict` (other archivers
        were faster), and `Corrupt` if the newest manifest is damaged; running again is always right."""
        try:
            return await self._pass(end)
        finally:
            # Arrow's pool keeps freed memory for the thread's next pass, which may be a minute away.
            await self._in_thread(pa.default_memory_pool().release_unused)

    async def collect(self) -> int:
        """Delete the entries that the floor passed at least a grace ago, as this process saw it. Returns their
        number."""
        await self._newest_known()
        ripe = self._ripe_floor()
        if ripe <= self.collected:
            return 0
        deleted = await self._wal.delete_below(ripe)
        self.collected = ripe
        return deleted

    async def _pass(self, end: int | None) -> PassReport | None:
        await self._look_again()
        await self._newest_known()
        read = await self._cursor.read(end)
        manifest = await self._newest_known()
        entries = [entry for entry in read if entry.header.seq >= manifest.floor.number]
        entries = entries[: affordable(entries)]
        if not entries:
            return None
        change = await self._planned(entries, manifest)
        try:
            encoded = await self._encoded(entries, change)
        except Corrupt as fault:
            self._lose_entry(entries, fault)
            return await self._pass(end)
        return await self._publish(entries, change, encoded)

    async def _planned(self, entries: Sequence[StoredEntry], manifest: ShardManifest) -> PassChange:
        """The plan of a pass. Topics and partitions that get stuck are noted."""
        places = {span.topic_partition for entry in entries for span in entry.header.spans}
        names = {place.topic_id: name for place in places if (name := self._topic_names(place.topic_id)) is not None}
        readable = {topic_id: name for topic_id, name in names.items() if topic_id not in self.damage.topics}
        manifest = await self._with_lists(manifest, readable)
        wanted = [place for place in places if place.topic_id in names and not self.damage.leaves_out(place)]
        plan = await self._in_thread(plan_topics, entries, {place: manifest.state(place) for place in wanted})
        if plan.gaps:
            await self._cursor.expect_floor(manifest.floor)
        for place, gap in plan.gaps.items():
            self._stick(place, replace(gap, topic=names[place.topic_id]))
        return PassChange(plan.topics, names, manifest, self._settings.producers, self._clock.now_ms())

    async def _with_lists(self, manifest: ShardManifest, names: Mapping[str, str]) -> ShardManifest:
        """`manifest` with the lists of topics. Those whose lists cannot be read are noted."""
        with suppress(Corrupt, NewerFormat):
            return await self._log.with_lists(manifest, names)
        for topic_id, name in names.items():
            try:
                manifest = await self._log.with_lists(manifest, [topic_id])
            except (Corrupt, NewerFormat) as fault:
                self._stick(topic_id, Stuck(fault, name))
        return manifest

    async def _encoded(self, entries: Sequence[StoredEntry], change: PassChange) -> Sequence[EncodedSegment]:
        """The segments of the plan, each made in a thread. Raises `Corrupt`, naming an entry."""

        async def one(plan: TopicPlan) -> EncodedSegment:
            place = SegmentPlace(change.names[plan.topic_id], plan.topic_id, change.began.shard)
            facts = SegmentFacts(self._entropy.new_id(), change.now_ms)
            return await self._in_thread(assembled, plan, place, entries, facts)

        return await asyncio.gather(*(one(plan) for plan in change.plans))

    async def _publish(
        self, entries: Sequence[StoredEntry], change: PassChange, encoded: Sequence[EncodedSegment]
    ) -> PassReport:
        """Append the version that lists the segments and moves the floor; none if there is neither."""
        last, manifest = entries[-1].header, change.began
        floor = None if self.damage.holds(last.seq + 1) else Floor(last.seq + 1, last.epoch)
        appended: dict[str, TopicSegment] = {}

        def successor(latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
            made = change.of(latest, added, floor)
            appended.update({topic_id: topic.added[0] for topic_id, topic in made.topics.items()})
            return made

        if floor or encoded:
            manifest = await self._uploads.append(self._log, encoded, successor)
        self._see_floor(manifest)
        self._cursor.position = max(self._cursor.position, last.seq + 1)
        return PassReport(manifest, appended, len(entries))

    def _stick(self, what: str | TopicPartition, stuck: Stuck) -> None:
        self.damage.note(what, stuck, self._clock.monotonic())

    def _lose_entry(self, entries: Sequence[StoredEntry], fault: Corrupt) -> None:
        """Note the entry that `fault` names: its bytes have their checksum, but they cannot be decoded."""
        seq = next((entry.header.seq for entry in entries if entry.key == fault.name), None)
        if seq is None:
            raise fault
        self._cursor.lose(seq, fault)

    async def _look_again(self) -> None:
        """Read damaged objects again, if that is due. If any is restored, archiving begins at the floor again."""
        now_s = self._clock.monotonic()
        if not self.damage or now_s < self.damage.look_again_at_s:
            return
        self.damage.looked_at(now_s)
        manifest = await self._log.newest()
        self._see_floor(manifest)
        entries, topics, partitions = self.damage.to_look_at()
        restored = [await self._cursor.is_back(seq) for seq in entries]
        restored += [await self._is_free(manifest, topic_id) for topic_id in topics]
        restored += [await self._is_free(manifest, place.topic_id, (place, stuck)) for place, stuck in partitions]
        if any(restored):
            self.damage.clear()
            self._cursor.position = self.floor

    async def _is_free(
        self, manifest: ShardManifest, topic_id: str, part: tuple[TopicPartition, Stuck] | None = None
    ) -> bool:
        """Whether a topic, or a partition of it, can be archived again, or the topic was deleted."""
        if self._topic_names(topic_id) is None:
            return True
        try:
            manifest = await self._log.with_lists(manifest, [topic_id])
        except (Corrupt, NewerFormat):
            return False
        if part is None:
            return True
        state = manifest.state(part[0])
        return past_losses(state.losses, state.cold_end) >= part[1].base_offset

    async def _newest_known(self) -> ShardManifest:
        """The newest version that is known."""
        manifest = self._log.known or await self._log.latest()
        self._see_floor(manifest)
        return manifest

    def _see_floor(self, manifest: ShardManifest) -> None:
        number = manifest.floor.number
        if not self._floors_seen or number > self._floors_seen[-1][0]:
            self._floors_seen.append((number, self._clock.monotonic()))
        self._cursor.floor_is(number)

    def _ripe_floor(self) -> int:
        """The highest floor that was seen at least a grace ago."""
        now_s = self._clock.monotonic()
        ripe = [number for number, seen_s in self._floors_seen if now_s - seen_s >= self._settings.grace_s]
        if ripe:
            self._floors_seen = [(n, s) for n, s in self._floors_seen if n >= ripe[-1]]
        return ripe[-1] if ripe else 0

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))
