"""Copies the partitions of a shard, and then the whole shard so that its log and its partitions meet: the cut.

A partition: its manifest is read first, its segments are copied next, and its manifest versions last, the newest at the
end. If a segment is deleted meanwhile (it was merged or expired more than a grace ago), the newest manifest is read
again and the missing segments are copied. Old versions and the history are copied as well, so that `attest` can follow
the chain of hashes in the copy.

A cut:

1. The floor is read, at time t0. Every record below it is in a manifest that can be read from now on (inv. 6).
2. The journal is read for the topics of this shard. A topic created later has all its records in entries from t0 on.
3. The manifests of the partitions are read, and copied with their segments. They reach at least up to the floor of t0,
   and every record in them was in the log by then.
4. The log is listed from the floor of t0 on, and copied. It reaches at least as far as the manifests.

By 1 and 3, nothing is missing between the manifests and the log (inv. 5). By 3 and 4, no manifest reaches beyond the
log, so a broker that continues from the copy leaves no gap (inv. 4). Every record acknowledged before t0 is in one of
the two (inv. 1).

Hazard: between 1 and 4, entries above the floor of t0 may be archived and, a grace later, deleted, and a stalled writer
may create such a number again. Defence: the cut is repeated if an entry is not as it was listed, or if the floor has
moved and more than the shortest grace of a broker has passed since t0. Most objects are copied by then.

If entries are missing though the floor has not moved, they are lost. They are named, and the rest is copied: the copy
lacks the same entries, and `repair` treats it in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from tidelog.storage.bucket.copy_transfer import Changed, Transfer
from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge, live_topics
from tidelog.storage.errors import Corrupt, NotFound, Unavailable
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import (
    TopicPartition,
    floor_key,
    history_prefix,
    manifest_prefix,
    number_of,
    segment_prefix,
    wal_prefix,
    wal_suffix,
)
from tidelog.storage.manifests.manifest import Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectInfo, list_all
from tidelog.storage.runtime import Clock
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec

ATTEMPTS_MAX = 16
CUTS_MAX = 8
PARTITIONS_AT_ONCE = 8


class PartitionCopy:
    """The copy of one partition of `topic`."""

    def __init__(self, transfer: Transfer, topics: TopicKnowledge, topic: KnownTopic, partition: int) -> None:
        self._transfer = transfer
        self._topics = topics
        self._topic = topic.name
        self._place = TopicPartition(topic.topic_id, partition)
        place = (topic.name, topic.topic_id, partition)
        self._manifests = manifest_prefix(*place)
        self._history = history_prefix(*place)
        self._segments = segment_prefix(*place)

    async def segments(self) -> None:
        """Copy the segments that the newest manifest names and the target lacks. The target's manifests stay."""
        await self._until_stable(self._copy_segments)

    async def publish(self) -> None:
        """Copy segments, then manifests, then delete from the target what they no longer name. Raises `Unavailable` if
        the source changes faster."""
        await self._until_stable(self._publish)

    async def _until_stable(self, act: Callable[[], Awaitable[object]]) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                await act()
            except (NotFound, Changed):
                if await self._is_deleted():
                    return
                continue
            except Corrupt as error:
                if not await self._is_deleted():
                    self._transfer.note_damage(error.name, error.reason)
            return
        raise Unavailable(
            f"segments of {self._topic}-{self._place.partition} are deleted faster than they are copied: raise "
            "delete.grace.ms of the brokers, or copy again when fewer segments are merged"
        )

    async def _is_deleted(self) -> bool:
        return self._place.topic_id not in await live_topics(self._topics)

    async def _copy_segments(self) -> Manifest:
        manifest = await ManifestLog(self._transfer.source, self._topic, self._place).latest()
        if manifest.version < 0:
            return manifest
        present = await self._transfer.sizes(self._segments)

        async def copy(segment: Segment) -> None:
            if segment.key in present:  # a part of it, or another object
                await self._transfer.target.delete(segment.key)
            await self._transfer.copy(segment.key, segment.size_bytes, sha256=segment.sha256)

        missing = [segment for segment in manifest.segments if present.get(segment.key) != segment.size_bytes]
        async for _ in in_order(missing, copy, at_once=self._transfer.at_once):
            pass
        missing_bytes = sum(segment.size_bytes for segment in missing)
        all_bytes = sum(segment.size_bytes for segment in manifest.segments)
        self._transfer.skip(len(manifest.segments) - len(missing), all_bytes - missing_bytes)
        return manifest

    async def _publish(self) -> None:
        manifest = await self._copy_segments()
        if manifest.version < 0:
            return
        versions = await self._versions(manifest)  # before the blocks: a version collected later is in a block already
        blocks = [info async for info in list_all(self._transfer.source, self._history)]
        present = await self._transfer.sizes(self._manifests)
        for info in (*blocks, *versions):  # in this order: a version counts once its whole history is in the target
            if present.get(info.key) == info.size:
                self._transfer.skip(1, info.size)
            else:
                await self._transfer.copy(info.key, info.size)
        await self._prune(manifest, versions, present)

    async def _versions(self, manifest: Manifest) -> Sequence[ObjectInfo]:
        """The versions up to that of `manifest`."""
        listed = [(self._version(info.key), info) async for info in list_all(self._transfer.source, self._manifests)]
        return [info for version, info in listed if version is not None and version <= manifest.version]

    def _version(self, key: str) -> int | None:
        return number_of(key, self._manifests, ".json")

    async def _prune(self, manifest: Manifest, versions: Sequence[ObjectInfo], present: Mapping[str, int]) -> None:
        """Remove the versions and segments of an earlier copy that the source no longer has."""
        kept = {info.key for info in versions}
        old = [key for key in present if self._version(key) is not None and key not in kept]
        named = {segment.key for segment in manifest.segments}
        old += [key for key in await self._transfer.sizes(self._segments) if key not in named]
        async for _ in in_order(old, self._transfer.delete, at_once=self._transfer.at_once):
            pass


class ShardCopy:
    """The copy of one shard. No broker of the source deletes anything within `grace_s` after it left the log."""

    def __init__(self, transfer: Transfer, topics: TopicKnowledge, shard: int, clock: Clock, grace_s: float) -> None:
        self._transfer = transfer
        self._topics = topics
        self._shard = shard
        self._clock = clock
        self._grace_s = grace_s
        self._wal = Wal(transfer.source, shard, ParquetWalCodec())

    async def cut(self) -> int:
        """Copy the shard; returns the number after its last entry. Raises `Unavailable` if the source deletes faster
        than it is copied, `Conflict` if something else writes to the target, `Corrupt` if the floor is damaged."""
        for _ in range(CUTS_MAX):
            try:
                end = await self._try()
            except (NotFound, Changed):
                continue
            if end is not None:
                return end
        raise Unavailable(
            f"shard {self._shard} is archived and deleted faster than it is copied: pass the brokers' delete.grace.ms "
            "with --grace, or raise it"
        )

    async def _try(self) -> int | None:
        """None if the cut must be repeated."""
        began_s = self._clock.monotonic()
        floor = await self._wal.floor()
        await self._publish_partitions()
        entries = await self._listed(floor.number)
        moved = (await self._wal.floor()).number > floor.number
        if list(entries) != list(range(floor.number, floor.number + len(entries))):
            if moved:  # a deletion in progress leaves a gap at the beginning of the listing
                return None
            self._name_lost(entries, floor.number)
        if moved and self._clock.monotonic() - began_s > self._grace_s:
            return None
        await self._copy_entries(entries.values())
        if floor.version is not None:
            target = Wal(self._transfer.target, self._shard, ParquetWalCodec())
            await target.advance_floor(floor.number, floor.epoch)
        await self._prune({info.key for info in entries.values()})
        return max(floor.number, max(entries, default=-1) + 1)

    async def _publish_partitions(self) -> None:
        async def publish(part: tuple[KnownTopic, int]) -> None:
            await PartitionCopy(self._transfer, self._topics, *part).publish()

        topics = await live_topics(self._topics)
        parts = ((topic, p) for topic in topics.values() for p, of in enumerate(topic.shards) if of == self._shard)
        async for _ in in_order(parts, publish, at_once=PARTITIONS_AT_ONCE):
            pass

    async def _listed(self, floor: int) -> Mapping[int, ObjectInfo]:
        """The entries from `floor` on, by number, ascending."""
        prefix = wal_prefix(self._shard)
        listed = list_all(self._transfer.source, prefix, start_after=self._wal.log.before(floor))
        numbered = [(number_of(info.key, prefix, wal_suffix()), info) async for info in listed]
        return {number: info for number, info in numbered if number is not None}

    def _name_lost(self, entries: Mapping[int, ObjectInfo], floor: int) -> None:
        expected = floor
        for number in entries:
            if number > expected:
                text = f"is missing, with all up to entry {number - 1}: see `tidelog bucket repair`"
                self._transfer.note_damage(self._wal.key(expected), text)
            expected = number + 1

    async def _copy_entries(self, entries: Iterable[ObjectInfo]) -> None:
        present = await self._transfer.sizes(wal_prefix(self._shard))

        async def copy(info: ObjectInfo) -> None:
            if info.key not in present:
                await self._transfer.copy(info.key, info.size, version=info.version)
            elif await self._transfer.same(info):
                self._transfer.skip(1, info.size)
            else:
                raise self._transfer.differs(info.key)

        async for _ in in_order(entries, copy, at_once=self._transfer.at_once):
            pass

    async def _prune(self, kept: set[str]) -> None:
        """Remove entries of an earlier copy that are below the floor by now, and the index, which no copy has."""
        floor = floor_key(self._shard)
        for key in await self._transfer.sizes(wal_prefix(self._shard)):
            if key != floor and key not in kept:
                await self._transfer.delete(key)
