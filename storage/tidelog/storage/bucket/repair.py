"""Repairs a bucket that lost objects: `tidelog bucket repair`. Records that exist nowhere any more are recorded as
lost, so that the rest of the log can be read and written again.

    repair = BucketRepair(store, topics, runtime)
    plan = await repair.plan()          # only reads
    await repair.apply(plan)

A crash at any step is safe, and running again continues, because of the order:

1. Manifests first. A version that cannot be read is replaced, by compare-and-swap, with one made from its newest
   readable predecessor, so the chain of hashes stays unbroken (`attest`). After a version that can be read, a new one
   is appended.
2. Then each lost entry of a log is given up, ascending: the entries before it are archived, and the floor moves past
   it. So its number is never created again (inv. 2), and the floor passes no entry whose records are neither in a
   segment nor recorded as lost (inv. 6).

Brokers may run at the same time. If a broker changes a manifest first, the repair is applied to the newer version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.storage.archive.archiver import Archiver
from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge, live_topics
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
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec

ATTEMPTS_MAX = 8


@dataclass(frozen=True)
class RepairPlan:
    """The repairs to apply, and the damage that only a person can repair (`unsolved`)."""

    partitions: Sequence[PartitionRepair] = ()
    logs: Sequence[LogRepair] = ()
    unsolved: Sequence[Finding] = ()

    def __bool__(self) -> bool:
        return bool(self.partitions or self.logs)


class BucketRepair:
    """The repair of one bucket. `deep`: read every byte of the segments, instead of only listing them."""

    def __init__(self, store: ObjectStore, topics: TopicKnowledge, runtime: Runtime, *, deep: bool = False) -> None:
        self._store = store
        self._topics = topics
        self._runtime = runtime
        self._survey = RepairSurvey(store, deep=deep)

    async def plan(self) -> RepairPlan:
        """Raises `Unavailable`, and `Corrupt` if the journal is damaged."""
        live = list((await live_topics(self._topics)).values())
        partitions: list[PartitionRepair] = []
        logs: list[LogRepair] = []
        unsolved: list[Finding] = []
        for shard in sorted({shard for topic in live for shard in topic.shards}):
            try:
                log = await self._survey.log(shard)
            except Corrupt as error:
                unsolved.append(_unsolved(error.name, error.reason))
                continue
            places = [(topic, number) for topic in live for number, of in enumerate(topic.shards) if of == shard]
            found = [await self._plan_partition(topic, number, log) for topic, number in places]
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

    async def apply(self, plan: RepairPlan) -> None:
        """Raises `Unavailable`, `Conflict` if other workers keep changing a manifest first, `Corrupt` if there is
        damage that the plan does not know: plan again."""
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
        """Whether a worker that knew the newest version from before has appended another since."""
        try:
            await log.latest()
        except (Corrupt, NotFound):
            return False
        return True

    async def _replace_versions(self, log: ManifestLog, repair: PartitionRepair) -> None:
        """Replace the unreadable versions: the first with the repaired manifest, the others with versions that change
        nothing, so that the newest number stays the same."""
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
            if await self._can_be_read_again(wal, seq):
                raise Conflict(f"{wal.key(seq)} can be read again: run the repair again")
            await wal.advance_floor(seq + 1, repair.epoch_after(seq, floor.epoch))

    async def _archive_up_to(self, wal: Wal, seq: int) -> None:
        """Archive until the floor is at entry `seq` or beyond."""
        names = {topic_id: topic.name for topic_id, topic in (await live_topics(self._topics)).items()}
        archiver = Archiver(self._store, wal, self._runtime, names.get)
        while (await wal.floor()).number < seq:
            if await archiver.run_once(seq) is None or archiver.damage:
                raise archiver.damage.first_fault() or Unavailable(f"cannot archive up to {wal.key(seq)}: run again")

    async def _can_be_read_again(self, wal: Wal, seq: int) -> bool:
        try:
            await wal.read(seq)
        except (Corrupt, NotFound):
            return False
        return True


def _lost_its_manifests(view: PartitionView, planned: PartitionRepair) -> bool:
    """Whether a partition without a manifest lacks offsets that no lost entry held."""
    return view.manifest.version < 0 and any(loss.key == view.newest_key for loss in planned.losses)


def _unsolved(key: str, text: str) -> Finding:
    return Finding(Severity.ERROR, key, f"{text}: restore it from a backup, then run again (docs/repair.md)")
