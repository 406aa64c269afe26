"""Repairs a bucket that lost objects: what `tidelog bucket repair` does. Records that are nowhere any more are recorded
as lost, so that the rest of the log lives on.

    repair = BucketRepair(store, topics, runtime)
    plan = await repair.plan()          # reads only
    await repair.apply(plan)

Order, and why a crash at any step is safe (running again goes on):

1. Manifests first. A version that cannot be read is replaced by one that follows from its newest readable predecessor;
   the object is exchanged by compare-and-swap, so the chain of hashes goes on (`attest`). A version that can be read is
   followed by another.
2. Then each lost entry of a log is given up, ascending: what lies before it is archived, and the floor moves past it.
   So its number is never created anew (inv. 2), and no entry is passed whose records are neither in a segment nor
   recorded as lost (inv. 6).

Brokers may run meanwhile. Where they change a manifest first, the change is made on what they made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.storage.archiver import Archiver, TopicNames
from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge
from tidelog.storage.bucket.repair_plan import (
    LogRepair,
    LogView,
    PartitionRepair,
    PartitionView,
    plan_log,
    plan_partition,
)
from tidelog.storage.bucket.repair_survey import RepairSurvey
from tidelog.storage.errors import Conflict, Corrupt, NotFound, Unavailable
from tidelog.storage.layout import manifest_prefix
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import grown
from tidelog.storage.manifests.manifest_codec import encode_manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal import Wal
from tidelog.storage.wal_codec import ParquetWalCodec

ATTEMPTS_MAX = 8


@dataclass(frozen=True)
class RepairPlan:
    """What is to be done, and what only a person can do."""

    partitions: Sequence[PartitionRepair] = ()
    logs: Sequence[LogRepair] = ()
    unsolved: Sequence[Finding] = ()

    def __bool__(self) -> bool:
        return bool(self.partitions or self.logs)


class BucketRepair:
    """`deep`: every byte of segments is read, not only whether they are there."""

    def __init__(self, store: ObjectStore, topics: TopicKnowledge, runtime: Runtime, *, deep: bool = False) -> None:
        self._store = store
        self._topics = topics
        self._runtime = runtime
        self._survey = RepairSurvey(store, deep=deep)

    # ---- planning

    async def plan(self) -> RepairPlan:
        """Raises `Unavailable`, and `Corrupt` if the journal is damaged."""
        live = [topic for topic in (await self._topics.topics()).values() if not topic.removing]
        partitions: list[PartitionRepair] = []
        logs: list[LogRepair] = []
        unsolved: list[Finding] = []
        for shard in sorted({shard for topic in live for shard in topic.shards}):
            try:
                log = await self._survey.log(shard)
            except Corrupt as error:
                unsolved.append(_unsolved(error.name, error.reason))
                continue
            found = [await self._plan_partition(topic, number, log) for topic, number in _living_in(live, shard)]
            stuck = [item for item in found if isinstance(item, Finding)]
            partitions += [item for item in found if isinstance(item, PartitionRepair)]
            unsolved += stuck
            if not stuck and (repair := plan_log(log)):
                logs.append(repair)
        return RepairPlan(tuple(partitions), tuple(logs), tuple(unsolved))

    async def _plan_partition(self, topic: KnownTopic, number: int, log: LogView) -> PartitionRepair | Finding | None:
        view = await self._survey.partition(topic, number, log)
        if view is None:
            prefix = manifest_prefix(topic.name, topic.topic_id, number)
            return _unsolved(prefix, f"no version of the manifest of {topic.name}-{number} can be read")
        planned = plan_partition(view, log, self._runtime.clock.now_ms())
        if planned and _lost_its_manifests(view, planned):
            text = f"{topic.name}-{number} has no manifest, though its log does not begin at offset 0"
            return _unsolved(view.newest_key, text)
        return planned

    # ---- applying

    async def apply(self, plan: RepairPlan) -> None:
        """Raises `Unavailable`, `Conflict` if workers are faster again and again, and `Corrupt` if something else is
        damaged than was planned for: plan again."""
        for partition in plan.partitions:
            await self._apply_partition(partition)
        for log in plan.logs:
            await self._give_up(log)

    async def _apply_partition(self, repair: PartitionRepair) -> None:
        log = ManifestLog(self._store, repair.topic, repair.place, self._runtime.clock)
        if repair.replaces > repair.after_version and not await self._can_be_read(log):
            await self._replace_versions(log, repair)
            return
        for _ in range(ATTEMPTS_MAX):
            latest = await log.latest()
            after = repair.applied_to(latest)
            if (after.segments, after.losses, after.cold_end) == (latest.segments, latest.losses, latest.cold_end):
                return
            try:
                await log.append(after, ChangeKind.LOSE)
            except Conflict:
                continue
            return
        raise Conflict(f"other workers changed {repair.topic}-{repair.place.partition} {ATTEMPTS_MAX} times: run again")

    async def _can_be_read(self, log: ManifestLog) -> bool:
        """Whether a worker that knew the newest version has appended another since."""
        try:
            await log.latest()
        except (Corrupt, NotFound):
            return False
        return True

    async def _replace_versions(self, log: ManifestLog, repair: PartitionRepair) -> None:
        """Write anew what follows the newest readable version: the repaired one, and then versions that change nothing,
        up to the number that was there."""
        manifest = await log.read(repair.after_version)
        after, kind = repair.applied_to(manifest), ChangeKind.LOSE
        for version in range(repair.after_version + 1, repair.replaces + 1):
            manifest = replace(grown(manifest, after, kind), base_version=None)
            await self._replace(log.key(version), manifest)
            after, kind = manifest, ChangeKind.SWEEP

    async def _replace(self, key: str, manifest: Manifest) -> None:
        body = encode_manifest(manifest)
        try:
            info = await self._store.head(key)
        except NotFound:
            await self._store.create(key, body)
            return
        await self._store.put(key, body, if_version=info.version)

    async def _give_up(self, repair: LogRepair) -> None:
        wal = Wal(self._store, repair.shard, ParquetWalCodec())
        for seq in repair.entries:
            await self._archive_up_to(wal, seq)
            floor = await wal.floor()
            if floor.number > seq:
                continue
            if await self._is_back(wal, seq):
                raise Conflict(f"{wal.key(seq)} can be read again: run again")
            await wal.advance_floor(seq + 1, repair.epoch_after(seq, floor.epoch))

    async def _archive_up_to(self, wal: Wal, seq: int) -> None:
        """So that the floor is at entry `seq`, or beyond it."""
        topics = await self._topics.topics()
        archiver = Archiver(self._store, wal, self._runtime, _names(topics))
        while (await wal.floor()).number < seq:
            if await archiver.run_once(seq) is None or archiver.damage:
                raise archiver.damage.first_fault() or Unavailable(f"{wal.key(seq)} cannot be reached: run again")

    async def _is_back(self, wal: Wal, seq: int) -> bool:
        try:
            await wal.read(seq)
        except (Corrupt, NotFound):
            return False
        return True


def _living_in(topics: Sequence[KnownTopic], shard: int) -> Sequence[tuple[KnownTopic, int]]:
    return [(topic, number) for topic in topics for number, place in enumerate(topic.shards) if place == shard]


def _names(topics: Mapping[str, KnownTopic]) -> TopicNames:
    return {topic_id: topic.name for topic_id, topic in topics.items() if not topic.removing}.get


def _lost_its_manifests(view: PartitionView, planned: PartitionRepair) -> bool:
    """Whether offsets are missing that no lost entry held, of a partition without any manifest."""
    return view.manifest.version < 0 and any(loss.key == view.newest_key for loss in planned.losses)


def _unsolved(key: str, text: str) -> Finding:
    return Finding(Severity.ERROR, key, f"{text}: put it back from a backup, then run again (docs/repair.md)")
