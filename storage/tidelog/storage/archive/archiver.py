"""Archives the write-ahead log of a shard as segments, one per partition and pass, and deletes archived entries later.

A pass takes entries from the floor on, as many as fit in memory. A crash between any two requests is safe because of
the order:

1. Read entries, then the floor again: an entry below it is not part of the log (`wal`).
2. For each partition, skip the records below its manifest's cold end, which are archived already. Upload the rest as a
   segment, then append the manifest version that names it. A crash between the two leaves an orphan, which no reader
   sees.
3. Move the floor, once every partition's manifest has the records of the entries (inv. 5, 6).

If the store fails for one partition, the pass starts no others and finishes those in progress; otherwise each retry of
the pass would leave orphans.

Damage stops only the damaged object. The pass skips lost entries, leaves out partitions whose manifest cannot be read,
and archives everything else. The floor stays until nothing is damaged (`archive_damage`), so the WAL grows meanwhile;
`damage` has the reason.

The archiver asks once which manifest is the newest. After that it continues from the version that it appended, and the
create of the next one fails if another worker came in between, such as a merge (`fresh_upload`). So a pass costs two
PUTs per partition, and a HEAD if the last pass was long ago.

Two archivers of one shard are safe. One of them wins the next version of a manifest; the other starts that partition
over and finds nothing left to do. At every moment, a record is in the manifest or in the WAL from the floor on; the
cold end alone decides which of the two a reader takes (inv. 5).

Deletion waits for a grace, counted on this process's monotonic clock from when it first saw the floor there. Readers
may hold plans over WAL entries, and stalled uploads may be in progress. No other clock is safe: a wall clock, or the
store's, may be wrong by more than the grace, and no durable record says when the floor moved. So a restarted process
waits a full grace again, which costs some storage and never a record (inv. 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, TypeVar

import pyarrow as pa

from tidelog.storage.archive.archive_cursor import ArchiveCursor
from tidelog.storage.archive.archive_damage import ArchiveDamage, StuckPartition
from tidelog.storage.archive.archive_plan import PartitionPlan, plan_archive
from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.in_flight import each_of
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.losses import past_losses
from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.manifests.producer_expiry import living_marks
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_codec import EncodedSegment, encode_segment
from tidelog.storage.upkeep.fresh_upload import FreshUpload
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import ProducerMark, WalEntry

P = ParamSpec("P")
T = TypeVar("T")

TopicNames = Callable[[str], str | None]
"""Maps a topic's id to its name; None once the topic is deleted. It must know every topic that has records."""

PARTITIONS_AT_ONCE = 8
"""A partition takes two requests in sequence; one at a time, a pass over a thousand of them would take minutes."""


@dataclass(frozen=True)
class ArchiverSettings:
    """`batch_bytes`: raw records that a pass holds in memory (at least one entry, however large).
    `producers_max`, `producer_expiration_ms`: limits of the producers that a manifest remembers."""

    batch_bytes: int = 128 * 1024 * 1024
    grace_s: float = 900.0
    producers_max: int = 10_000
    producer_expiration_ms: int = 86_400_000
    manifest_logs_max: int = 20_000


@dataclass(frozen=True)
class ArchiveReport:
    """The result of a pass. `floor` is the first entry of the log now; `manifests` are the new ones, by partition."""

    manifests: tuple[Manifest, ...]
    floor: int
    entries: int
    records: int
    raw_bytes: int
    stored_bytes: int


class Archiver:
    """Archives `wal`. One pass at a time; other archivers may work on the same log. `executor` runs the encoding; None:
    the event loop's default."""

    def __init__(
        self,
        store: ObjectStore,
        wal: Wal,
        runtime: Runtime,
        topic_names: TopicNames,
        settings: ArchiverSettings | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._wal = wal
        self._runtime = runtime
        self._topic_names = topic_names
        self._settings = settings or ArchiverSettings()
        self._executor = executor
        self._fresh_upload = FreshUpload(store, runtime, self._settings.grace_s)
        self._manifest_logs: dict[TopicPartition, ManifestLog] = {}
        self._made: list[Manifest] = []
        self._floors_seen: list[tuple[int, float]] = []
        self._collected = 0
        self.damage = ArchiveDamage()
        self._cursor = ArchiveCursor(wal, self.damage, runtime.clock, self._settings.batch_bytes, executor)

    async def run_once(self, up_to: int | None = None) -> ArchiveReport | None:
        """One pass over the committed entries below `up_to`, the writer's next number; None: over all entries. Returns
        None if there are none. `damage` then has the damaged objects. Raises `Unavailable`, and `Corrupt` if the floor
        is damaged; running again is always right."""
        try:
            return await self._pass(up_to)
        finally:
            # Arrow's pool keeps freed memory for the thread's next pass, which may be a minute away.
            await self._in_thread(pa.default_memory_pool().release_unused)

    async def _pass(self, up_to: int | None) -> ArchiveReport | None:
        self._made.clear()
        self._see_floor(await self._cursor.see_floor())
        await self._look_again()
        entries = await self._cursor.read(up_to)
        self._see_floor(self._cursor.floor)
        if not entries:
            return None
        plans, raw_bytes = await self._in_thread(_planned, entries)
        named = [(name, plan) for plan in plans if (name := self._name(plan)) is not None]
        await each_of(named, self._archive_or_hold, at_once=PARTITIONS_AT_ONCE)
        if not self.damage:
            floor = await self._wal.advance_floor(entries[-1].header.seq + 1, entries[-1].header.epoch)
            self._see_floor(floor.number)
        self._cursor.position = entries[-1].header.seq + 1
        added = [manifest.segments[-1] for manifest in self.made]
        return ArchiveReport(
            manifests=self.made,
            floor=self.floor,
            entries=len(entries),
            records=sum(segment.records for segment in added),
            raw_bytes=raw_bytes,
            stored_bytes=sum(segment.size_bytes for segment in added),
        )

    @property
    def made(self) -> tuple[Manifest, ...]:
        """The manifests that the last pass appended, by partition, even if it failed afterwards."""
        return tuple(sorted(self._made, key=lambda manifest: manifest.topic_partition))

    @property
    def floor(self) -> int:
        """The floor, as this process last saw it."""
        return self._floors_seen[-1][0] if self._floors_seen else 0

    @property
    def position(self) -> int:
        """Everything below this entry is archived, except for `damage`. Without damage, this is the floor."""
        return max(self.floor, self._cursor.position)

    @property
    def collected(self) -> int:
        """The entries below this number were deleted."""
        return self._collected

    async def collect(self) -> int:
        """Delete the entries that the floor passed at least a grace ago, as this process saw it. Returns their
        number."""
        self._see_floor((await self._wal.floor()).number)
        ripe = self._ripe_floor()
        if ripe <= self._collected:
            return 0
        deleted = 0
        async for number in self._wal.log.numbers():
            if number >= ripe:
                break
            await self._wal.delete(number)
            deleted += 1
        self._collected = ripe
        return deleted

    async def _look_again(self) -> None:
        """Read damaged objects again, if that is due. If any is restored, archiving begins at the floor again, and
        skips the records that are archived already."""
        now_s = self._runtime.clock.monotonic()
        if not self.damage or now_s < self.damage.look_again_at_s:
            return
        self.damage.looked_at(now_s)
        entries, partitions = self.damage.to_look_at()
        restored = [await self._cursor.is_back(lost) for lost in entries]
        restored += [await self._is_free(stuck) for stuck in partitions]
        if any(restored):
            self.damage.clear()
            self._cursor.position = self._cursor.floor

    async def _is_free(self, stuck: StuckPartition) -> bool:
        """Whether a partition can be archived again, or its topic was deleted."""
        if self._topic_names(stuck.place.topic_id) is None:
            return True
        try:
            manifest = await ManifestLog(self._store, stuck.topic, stuck.place).latest()
        except (Corrupt, NotFound):
            return False
        return past_losses(manifest.losses, manifest.cold_end) >= stuck.base_offset

    async def _archive_or_hold(self, named: tuple[str, PartitionPlan]) -> None:
        """`_archive`; a damaged partition is noted, and left out of the following passes."""
        topic, plan = named
        if plan.topic_partition in self.damage.partitions:
            return
        try:
            await self._archive(named)
        except Corrupt as fault:
            stuck = StuckPartition(topic, plan.topic_partition, plan.base_offset, fault)
            self.damage.hold(stuck, self._runtime.clock.monotonic())

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))

    def _name(self, plan: PartitionPlan) -> str | None:
        return self._topic_names(plan.topic_partition.topic_id)

    async def _archive(self, named: tuple[str, PartitionPlan]) -> None:
        """Append the manifest that holds the records of a plan, unless they are archived already."""
        topic, plan = named
        log = self._manifest_log(topic, plan.topic_partition)
        manifest = await self._manifest_before(log, plan)
        while manifest.cold_end < plan.next_offset:
            try:
                self._made.append(await self._append(log, topic, plan, manifest))
                return
            except Conflict:
                latest = await log.latest()
                if latest.cold_end == manifest.cold_end:
                    raise
                manifest = latest  # another archiver was faster: start over from its version

    async def _manifest_before(self, log: ManifestLog, plan: PartitionPlan) -> Manifest:
        """The newest manifest that is known; read from the store if the known one does not reach up to `plan`."""
        known = log.known
        return known if known and known.cold_end >= plan.base_offset else await log.latest()

    async def _append(self, log: ManifestLog, topic: str, plan: PartitionPlan, manifest: Manifest) -> Manifest:
        segment_id = self._runtime.entropy.new_id()
        encoded = await self._in_thread(_encoded, topic, plan, manifest, segment_id)
        segment = replace(encoded.segment, archived_at_ms=self._runtime.clock.now_ms())

        def grown(latest: Manifest, added: Sequence[Segment]) -> Manifest:
            if latest.cold_end != manifest.cold_end:
                raise Conflict(f"another archiver was faster: {latest.cold_end} is the cold end")
            return replace(
                latest,
                cold_end=past_losses(latest.losses, segment.next_offset),
                segments=(*latest.segments, *added),
                producers=plan.producers_after(self._living(latest), self._settings.producers_max),
            )

        return await self._fresh_upload.append(log, [EncodedSegment(segment, encoded.body)], grown, ChangeKind.ARCHIVE)

    def _living(self, manifest: Manifest) -> tuple[ProducerMark, ...]:
        before_ms = self._runtime.clock.now_ms() - self._settings.producer_expiration_ms
        return living_marks(manifest.producers, manifest.segments, before_ms)

    def _manifest_log(self, topic: str, topic_partition: TopicPartition) -> ManifestLog:
        log = self._manifest_logs.pop(topic_partition, None) or ManifestLog(
            self._store, topic, topic_partition, self._runtime.clock
        )
        self._manifest_logs[topic_partition] = log  # the most recently used is last
        while len(self._manifest_logs) > self._settings.manifest_logs_max:
            del self._manifest_logs[next(iter(self._manifest_logs))]
        return log

    def _see_floor(self, number: int) -> None:
        if not self._floors_seen or number > self._floors_seen[-1][0]:
            self._floors_seen.append((number, self._runtime.clock.monotonic()))

    def _ripe_floor(self) -> int:
        """The highest floor that was seen at least a grace ago."""
        now_s = self._runtime.clock.monotonic()
        ripe = [number for number, seen_s in self._floors_seen if now_s - seen_s >= self._settings.grace_s]
        if ripe:
            self._floors_seen = [(n, s) for n, s in self._floors_seen if n >= ripe[-1]]
        return ripe[-1] if ripe else 0


# Both are slow for thousands of tiny entries, so they run in a thread.


def _planned(entries: Sequence[WalEntry]) -> tuple[Sequence[PartitionPlan], int]:
    """The plans for `entries`, and their raw bytes."""
    return plan_archive(entries), sum(entry.records.nbytes for entry in entries)


def _encoded(topic: str, plan: PartitionPlan, before: Manifest, segment_id: str) -> EncodedSegment:
    records = plan.records_from(before.cold_end, before.losses)
    return encode_segment(topic, plan.topic_partition, records, segment_id)
