"""Wrong versions of the archiver, the manifest, merging, retention, collection and of a reader, each with one mistake.
The simulation must catch every one of them.

Each overrides one step of a class of the product. The product does not know them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.batches import PARTITIONS, TOPICS, topic_id_of
from tests.simulation.reader import Reader

from tidelog.storage.archive.archiver import Archiver, PassReport
from tidelog.storage.archive.pass_change import PassChange
from tidelog.storage.archive.topic_plan import TopicPlan
from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.partition_view import view_of
from tidelog.storage.manifests.shard_history import ShardHistory
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_upload import EncodedSegment, ShardUpload, Successor
from tidelog.storage.manifests.shard_values import ChangeKind, TopicSegment
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import Body
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.collect import Collector, _block
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.retention import ExpireTask
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.upkeep.sightings import Sightings
from tidelog.storage.upkeep.task import TopicInShard
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.stored_entry import StoredEntry

# ---- the archiver


class FloorBeforeManifest(Archiver):
    """Raises the floor by a version of its own, then lists the segments."""

    async def _publish(
        self, entries: Sequence[StoredEntry], change: PassChange, encoded: Sequence[EncodedSegment]
    ) -> PassReport:
        last = entries[-1].header
        moved = ManifestChange(ChangeKind.ARCHIVE, floor=Floor(last.seq + 1, last.epoch))
        manifest = await self._log.append(moved, change.began)
        return await super()._publish(entries, replace(change, began=manifest), encoded)


class PublishesOnAnyVersion(Archiver):
    """Appends its plan to the newest version, even if others have archived since the plan was made."""

    async def _publish(
        self, entries: Sequence[StoredEntry], change: PassChange, encoded: Sequence[EncodedSegment]
    ) -> PassReport:
        latest = await self._log.with_lists(await self._log.latest(), TOPICS)
        return await super()._publish(entries, replace(change, began=latest), encoded)


class SkipsAnEntry(Archiver):
    """Leaves the last entry of a larger pass out of the plan."""

    async def _planned(self, entries: Sequence[StoredEntry], manifest: ShardManifest) -> PassChange:
        return await super()._planned(entries[:-1] if len(entries) > 2 else entries, manifest)


class ForgetsProducers(Archiver):
    """Does not keep the last batches of producers."""

    async def _planned(self, entries: Sequence[StoredEntry], manifest: ShardManifest) -> PassChange:
        planned = await super()._planned(entries, manifest)
        return replace(planned, plans=[_without_producers(topic) for topic in planned.plans])


def _without_producers(topic: TopicPlan) -> TopicPlan:
    parts = {number: replace(part, producers=()) for number, part in topic.partitions.items()}
    return replace(topic, partitions=parts)


class NoGrace(Archiver):
    """Deletes entries as soon as the floor has passed."""

    def _ripe_floor(self) -> int:
        return self.floor


# ---- the manifest


class _OverwrittenLog(ObjectLog):
    async def create(self, number: int, body: Body) -> str:
        return await self._store.put(self.key(number), body)


class OverwritesVersions(ShardLog):
    """Appends without create-if-absent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        log = self._log
        self._log = _OverwrittenLog(log._store, log._prefix, log._suffix)


class NoLookAfterAppend(ShardLog):
    """Takes every successful create as an append, however long it took."""

    async def _predecessor_is_there(self) -> bool:
        return True


class TagIsNoProof(ShardLog):
    """Takes any version with its number as its own, without a look at the bytes."""

    async def _expect_own(self, version: int, body: bytes, conflict: Conflict) -> str:
        return (await self._log.read(version)).info.version


# ---- upkeep


class _LenientUpload(ShardUpload):
    """Goes on with what is left if the inputs are gone."""

    async def append(self, log: ShardLog, segments: Sequence[EncodedSegment], successor: Successor) -> ShardManifest:
        planned: list[ManifestChange] = []

        def lenient(latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
            try:
                planned.append(successor(latest, added))
            except Conflict:
                if not planned:
                    raise
            return _what_is_left(planned[-1], latest, added)

        return await super().append(log, segments, lenient)


def _what_is_left(change: ManifestChange, latest: ShardManifest, added: Sequence[TopicSegment]) -> ManifestChange:
    (topic_id, topic), *_ = change.topics.items()
    listed = tuple(key for key in topic.removed if key in latest.topics[topic_id].segments)
    return replace(change, topics={topic_id: replace(topic, removed=listed, added=tuple(added))})


class MergesWhatIsGone(MergeTask):
    """Does not check that its inputs are still listed when it lists its output."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        uploads = self._rewriter._uploads
        self._rewriter._uploads = _LenientUpload(uploads._store, uploads._runtime, uploads._grace_s)


class ExpiresTooMuch(ExpireTask):
    """Keeps half of the bytes that it should."""

    def due_at_ms(self, topic: TopicInShard, rules: UpkeepRules, now_ms: int) -> int | None:
        return super().due_at_ms(topic, _halved(rules), now_ms)

    async def run(self, place: SegmentPlace, log: ShardLog, rules: UpkeepRules) -> ShardManifest | None:
        return await super().run(place, log, _halved(rules))


def _halved(rules: UpkeepRules) -> UpkeepRules:
    return replace(rules, retention_bytes=rules.retention_bytes // 2) if rules.retention_bytes > 0 else rules


# ---- collection


class NoGraceForGarbage(Collector):
    """Deletes garbage as soon as it left the list."""

    def _seen_long_ms(self, version: int, now_ms: int) -> int:
        return now_ms


class NoGraceForVersions(Collector):
    """Deletes a version as soon as there are two newer ones."""

    async def _collect_versions(self, log: ShardLog) -> None:
        patient, self._sightings = self._sightings, Sightings(self._clock, 0.0)
        self._sightings.see((await log.newest()).version)
        try:
            await super()._collect_versions(log)
        finally:
            self._sightings = patient


class ForgetsGarbageFirst(Collector):
    """Appends the version that does not name the garbage, and then deletes it."""

    async def _collect_garbage(
        self, log: ShardLog, manifest: ShardManifest
    ) -> tuple[ShardManifest | None, Corrupt | None]:
        now_ms = self._clock.now_ms()
        ripe = [each.key for each, ripe_ms in self._ripening(manifest.garbage, now_ms) if ripe_ms <= now_ms]
        if not ripe:
            return None, None
        after = await log.append(ManifestChange(ChangeKind.COLLECT, collected=frozenset(ripe)), manifest)
        await self._store.delete_many(ripe)
        return after, None


class HistoryAfterDeletion(Collector):
    """Deletes the versions of a block, and then writes the block."""

    async def _collect_block(self, log: ShardLog, history: ShardHistory, first: int, versions: Sequence[int]) -> None:
        block = await _block(log, history, first, first + self._block_versions - 1)
        for version in versions:
            await log.delete(version)
        if block is not None:
            await history.write(block)


# ---- readers


class ReadsWithoutSecondLook(Reader):
    """Trusts what it read by number, however long the read took."""

    async def still_in_log(self, floor: Floor) -> bool:
        return True


class PlansOnce(Reader):
    """Keeps its plan if a segment of it is gone."""

    def lost_a_segment(self) -> None:
        return


class SkipsLostSegments(Reader):
    """Takes a segment that is gone for one without records."""

    async def _read_archive(self, plan: ShardManifest) -> bool:
        try:
            return await super()._read_archive(plan)
        except NotFound:
            for partition in range(PARTITIONS):
                place = TopicPartition(topic_id_of(partition), partition)
                self._skip(partition, view_of(plan, place).cold_end)
            return False
