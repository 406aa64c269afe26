"""Repairs a bucket that lost objects: `tidelog bucket repair`. Records that exist nowhere any more are recorded as
lost, so that the rest of the log can be read and written again.

    repair = BucketRepair(store, topics, runtime)
    plan = await repair.plan()          # only reads
    await repair.apply(plan)

A crash at any step is safe, and running again continues, because of the order, for each shard:

1. Lists that cannot be read are made again (`list_restore`).
2. If the newest version of the manifest cannot be read, it is replaced, by compare-and-swap, with one made from its
   newest readable predecessor, so the chain of hashes stays unbroken (`attest`).
3. One version (`ChangeKind.LOSE`) takes lost segments out of the lists, lists spare ones, records all losses, and moves
   the floor past the lost entries at which it stands.
4. Then, for each later lost entry, ascending: the entries before it are archived, and a version moves the floor past
   it. So its number is never created again (inv. 2), and the floor passes no entry whose records are neither in a
   segment nor recorded as lost (inv. 6).

Brokers may run at the same time. If a broker changes the manifest first, the repair is applied to the newer version.

A replaced version lacks what only it had: the last batches of idempotent producers and the leader epochs since its
predecessor, and the compaction and retention in it, which brokers do again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.storage.archive.archiver import Archiver
from tidelog.storage.bucket.finding import UNREADABLE, Finding, Unreadable, unreadable
from tidelog.storage.bucket.known_topics import TopicKnowledge, live_topics
from tidelog.storage.bucket.repair.list_restore import ListRestore, plan_list
from tidelog.storage.bucket.repair.repair_plan import ShardRepair, ShardView, plan_shard
from tidelog.storage.bucket.repair.repair_survey import ShardSurvey
from tidelog.storage.errors import Conflict, Corrupt, NotFound, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, applied, encode_version
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec


@dataclass(frozen=True)
class RepairPlan:
    """The repairs to apply, and the damage that only a person can repair (`unsolved`). `lists`: by shard, the lists to
    make again, before their shards are planned once more."""

    lists: Sequence[tuple[int, ListRestore]] = ()
    shards: Sequence[ShardRepair] = ()
    unsolved: Sequence[Finding] = ()

    def __bool__(self) -> bool:
        return bool(self.lists or self.shards)


class BucketRepair:
    """The repair of one bucket. `deep`: read every byte of the segments, instead of only listing them."""

    def __init__(self, store: ObjectStore, topics: TopicKnowledge, runtime: Runtime, *, deep: bool = False) -> None:
        self._store = store
        self._topics = topics
        self._runtime = runtime
        self._deep = deep

    async def plan(self) -> RepairPlan:
        """Raises `Unavailable`, and `Corrupt` if the journal is damaged."""
        live = list((await live_topics(self._topics)).values())
        lists: list[tuple[int, ListRestore]] = []
        repairs: list[ShardRepair] = []
        unsolved: list[Finding] = []
        for shard in sorted({shard for topic in live for shard in topic.shards}):
            here = [topic for topic in live if shard in topic.shards]
            try:
                view = await ShardSurvey(self._store, shard, here, self._runtime, deep=self._deep).run()
            except UNREADABLE as fault:
                unsolved.append(_unsolved(fault))
                continue
            planned = plan_shard(view, self._runtime.clock.now_ms())
            restored, faults = await self._plan_lists(shard, view)
            lists += [(shard, each) for each in restored]
            stuck = [*faults, *_lost_without_manifest(planned)]
            unsolved += [_unsolved(fault) for fault in stuck]
            if planned and (stuck or restored):  # nothing of a topic that cannot be read may be passed by the floor
                planned = replace(planned, entries={})
            if planned and (planned.fault or planned.topics or planned.entries) and not _is_hopeless(planned, stuck):
                repairs.append(planned)
        return RepairPlan(tuple(lists), tuple(repairs), tuple(unsolved))

    async def _plan_lists(self, shard: int, view: ShardView) -> tuple[list[ListRestore], list[Unreadable]]:
        """The lists that can be made again, and the faults of the others."""
        restored: list[ListRestore] = []
        faults: list[Unreadable] = []
        log, now_ms = ShardLog(self._store, shard, self._runtime), self._runtime.clock.now_ms()
        for topic_id, fault in view.unreadable.items():
            if view.fault is not None or not isinstance(fault, Corrupt):
                faults.append(fault)
                continue
            try:
                restored.append(await plan_list(self._store, log, view.manifest, topic_id, fault, now_ms))
            except UNREADABLE as error:
                faults.append(error)
        return restored, faults

    async def apply(self, plan: RepairPlan) -> None:
        """Raises `Unavailable`, `Conflict` if other workers keep changing a manifest first, `Corrupt` if there is
        damage that the plan does not know: plan again."""
        for shard, restored in plan.lists:
            await restored.apply(ShardLog(self._store, shard, self._runtime))
        for repair in plan.shards:
            await self._apply(repair)

    async def _apply(self, repair: ShardRepair) -> None:
        log = ShardLog(self._store, repair.shard, self._runtime)
        wal = Wal(self._store, repair.shard, ParquetWalCodec(), log)
        if repair.fault is not None and not await self._can_be_read(log):
            await self._replace_versions(log, repair)
        await self._change(log, wal, repair)
        for seq in repair.entries:
            if (await wal.floor()).number <= seq:
                await self._archive_up_to(log, wal, seq)
                await self._change(log, wal, repair)

    async def _change(self, log: ShardLog, wal: Wal, repair: ShardRepair) -> None:
        """Append what is left to change in the newest version."""
        floor = (await log.latest()).floor
        for seq in range(floor.number, repair.floor_after(floor).number):
            if await self._can_be_read_again(wal, seq):
                raise Conflict(f"{wal.key(seq)} can be read again: run the repair again")
        await log.change([topic.topic_id for topic in repair.topics], repair.change_of)

    async def _can_be_read(self, log: ShardLog) -> bool:
        """Whether a worker that knew the newest version from before has appended another since."""
        try:
            await log.latest()
        except (Corrupt, NotFound):
            return False
        return True

    async def _replace_versions(self, log: ShardLog, repair: ShardRepair) -> None:
        """Replace the unreadable versions: the first with the repaired manifest, the others with versions that change
        nothing, so that the newest number stays the same."""
        manifest = await log.read(repair.after_version)
        manifest = await log.with_lists(manifest, [topic.topic_id for topic in repair.topics])
        change = repair.change_of(manifest) or ManifestChange(ChangeKind.LOSE)
        for version in range(repair.after_version + 1, repair.replaces + 1):
            manifest = applied(manifest, change, self._runtime.clock.now_ms())
            await self._replace(log.key(version), manifest)
            change = ManifestChange(ChangeKind.SWEEP)

    async def _replace(self, key: str, manifest: ShardManifest) -> None:
        body = encode_version(manifest)
        try:
            info = await self._store.head(key)
        except NotFound:
            await self._store.create(key, body)
            return
        await self._store.put(key, body, if_version=info.version)

    async def _archive_up_to(self, log: ShardLog, wal: Wal, seq: int) -> None:
        """Archive until the floor is at entry `seq` or beyond."""
        names = {topic_id: topic.name for topic_id, topic in (await live_topics(self._topics)).items()}
        archiver = Archiver(self._store, wal, log, self._runtime, names.get)
        while (await wal.floor()).number < seq:
            if await archiver.run_once(seq) is None or archiver.damage:
                raise archiver.damage.first_fault() or Unavailable(f"cannot archive up to {wal.key(seq)}: run again")

    async def _can_be_read_again(self, wal: Wal, seq: int) -> bool:
        try:
            await wal.read(seq)
        except (Corrupt, NotFound):
            return False
        return True


def _lost_without_manifest(planned: ShardRepair | None) -> Sequence[Corrupt]:
    """Whether a shard without a manifest lacks offsets that no lost entry held: then its manifest was lost."""
    if planned is None or planned.after_version >= 0:
        return ()
    losses = [loss for topic in planned.topics for of in topic.losses.values() for loss in of]
    if not any(loss.key == planned.newest_key for loss in losses):
        return ()
    return [Corrupt(planned.newest_key, f"shard {planned.shard} has no manifest, though records before its log exist")]


def _is_hopeless(planned: ShardRepair, stuck: Sequence[Unreadable]) -> bool:
    """Whether a replaced version would lose what a person may restore: a topic's list, or the manifest itself."""
    return bool(stuck) and (planned.fault is not None or planned.after_version < 0)


def _unsolved(fault: Unreadable) -> Finding:
    return unreadable(fault, harm="restore it from a backup, then run again (docs/repair.md)")
