"""Copies a shard so that its log and its manifest meet: the cut.

1. The newest version of the manifest is read, at time t0. It has the floor, and every record below the floor is in a
   segment that it names (inv. 6).
2. The segments and lists that it names are copied.
3. The log is listed from that floor on, and copied.
4. The versions up to that one, and the history, are copied, so that `attest` can follow the chain of hashes. That
   version comes last.

By 1 and 3, nothing is missing between the manifest and the log (inv. 5), and every record acknowledged before t0 is in
one of the two (inv. 1). The records of the manifest were in the log before t0, so it does not reach beyond the log, and
a broker that continues from the copy leaves no gap (inv. 4).

Hazard: between 1 and 3, entries above the floor of t0 may be archived and, a grace later, deleted, and a stalled writer
may create such a number again. Defence: the cut is repeated if an entry is not as it was listed, or if the floor has
moved and more than the shortest grace of a broker has passed since t0. Most objects are copied by then. It is repeated,
too, if a segment or version was deleted meanwhile.

Entries, segments and lists that are missing although the manifest has not changed are lost. They are named, and the
rest is copied: the copy lacks the same objects, and `repair` treats it in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.storage.bucket.copy.transfer import Changed, Transfer
from tidelog.storage.bucket.finding import UNREADABLE, Finding, error, unreadable
from tidelog.storage.bucket.known_topics import TopicKnowledge, live_topics
from tidelog.storage.errors import Conflict, NotFound, Unavailable
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import (
    lists_prefix,
    manifests_prefix,
    shard_history_prefix,
    shard_segment_prefix,
    wal_prefix,
    wal_suffix,
)
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.object_store import ObjectInfo, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec

CUTS_MAX = 8
TOPICS_AT_ONCE = 8


@dataclass(frozen=True)
class Cut:
    """A shard as it was copied: the numbers after the last entry of its log and after its newest version, and the ids
    of its topics."""

    wal_end: int
    manifest_end: int
    topic_ids: frozenset[str]


@dataclass(frozen=True)
class _Wanted:
    """An object that the manifest names. `sha256` is None if the manifest cannot tell it."""

    key: str
    size_bytes: int
    sha256: str | None


class ShardCopy:
    """The copy of one shard. No broker of the source deletes anything within `grace_s` after it left the log."""

    def __init__(
        self, transfer: Transfer, topics: TopicKnowledge, shard: int, runtime: Runtime, grace_s: float
    ) -> None:
        self._transfer = transfer
        self._topics = topics
        self._shard = shard
        self._clock = runtime.clock
        self._grace_s = grace_s
        self._log = ShardLog(transfer.source, shard, runtime, lists_bytes=0)
        self._wal = Wal(transfer.source, shard, ParquetWalCodec(), self._log)

    async def bulk(self) -> None:
        """Copy the segments and lists that the newest version names and the target lacks. The target's manifest and log
        stay. Raises `Corrupt` if the newest version is damaged."""
        for _ in range(CUTS_MAX):
            try:
                await self._copy_named(await self._log.latest())
            except (NotFound, Changed):
                continue
            return
        raise self._too_fast()

    async def cut(self) -> Cut:
        """Copy the shard. Raises `Unavailable` if the source deletes faster than it is copied, `Conflict` if something
        else writes to the target, `Corrupt` if the newest version is damaged."""
        for _ in range(CUTS_MAX):
            try:
                cut = await self._try()
            except (NotFound, Changed):
                continue
            if cut is not None:
                return cut
        raise self._too_fast()

    async def _try(self) -> Cut | None:
        """None if the cut must be repeated."""
        began_s = self._clock.monotonic()
        manifest = await self._log.latest()
        floor = manifest.floor.number
        named = await self._copy_named(manifest)
        entries = await self._transfer.entries(wal_prefix(self._shard), wal_suffix(), floor)
        moved = (await self._log.latest()).floor.number > floor
        if list(entries) != list(range(floor, floor + len(entries))):
            if moved:  # a deletion in progress leaves a gap at the beginning of the listing
                return None
            self._name_lost(entries, floor)
        if moved and self._clock.monotonic() - began_s > self._grace_s:
            return None
        await self._copy_entries(entries.values())
        versions = await self._publish(manifest)
        await self._prune({*named, *versions, *(info.key for info in entries.values())}, manifest)
        return Cut(max(floor, max(entries, default=-1) + 1), manifest.version + 1, frozenset(manifest.topics))

    async def _copy_named(self, manifest: ShardManifest) -> set[str]:
        """Copy the segments and lists that `manifest` names; returns their keys."""
        keys: set[str] = set()

        async def copy(topic_id: str) -> Sequence[_Wanted]:
            wanted = await self._wanted(manifest, topic_id)
            await self._copy_wanted(manifest, topic_id, wanted)
            return wanted

        async for _, wanted in in_order(manifest.topics, copy, at_once=TOPICS_AT_ONCE):
            keys.update(each.key for each in wanted)
        return keys

    async def _wanted(self, manifest: ShardManifest, topic_id: str) -> Sequence[_Wanted]:
        """The objects of a topic. If its list is damaged, these are all that the bucket has."""
        stored = manifest.topics[topic_id].stored
        listed = [_Wanted(stored.key, stored.size_bytes, stored.sha256)] if stored else []
        try:
            segments = (await self._log.with_lists(manifest, [topic_id])).topics[topic_id].segments
        except Conflict as conflict:
            raise Changed(str(conflict)) from conflict
        except UNREADABLE as fault:
            await self._note(topic_id, unreadable(fault))
            folder = list_all(self._transfer.source, self._segments_prefix(manifest, topic_id))
            return [*listed, *[_Wanted(info.key, info.size, None) async for info in folder]]
        return [*listed, *(_Wanted(each.key, each.size_bytes, each.sha256) for each in segments)]

    async def _copy_wanted(self, manifest: ShardManifest, topic_id: str, wanted: Sequence[_Wanted]) -> None:
        """Copy those of `wanted` that the target lacks."""
        present = {
            **await self._transfer.sizes(self._segments_prefix(manifest, topic_id)),
            **await self._transfer.sizes(f"{lists_prefix(self._shard)}{topic_id}-"),
        }

        async def copy(each: _Wanted) -> None:
            if each.key in present:  # a part of it, or another object
                await self._transfer.delete([each.key])
            try:
                await self._transfer.copy(each.key, each.size_bytes, sha256=each.sha256)
            except NotFound:
                if (await self._log.latest()).version != manifest.version:
                    raise
                text = "is missing, and the manifest names it: see `tidelog bucket repair`"
                await self._note(topic_id, error(each.key, text))

        missing = [each for each in wanted if present.get(each.key) != each.size_bytes]
        async for _ in in_order(missing, copy, at_once=self._transfer.at_once):
            pass
        missing_bytes = sum(each.size_bytes for each in missing)
        self._transfer.skip(len(wanted) - len(missing), sum(each.size_bytes for each in wanted) - missing_bytes)

    async def _note(self, topic_id: str, fault: Finding) -> None:
        """Note damage, unless the topic was deleted: then its objects go."""
        if topic_id in await live_topics(self._topics):
            self._transfer.note_damage(fault)

    def _segments_prefix(self, manifest: ShardManifest, topic_id: str) -> str:
        return shard_segment_prefix(manifest.topics[topic_id].name, topic_id, self._shard)

    def _name_lost(self, entries: Mapping[int, ObjectInfo], floor: int) -> None:
        expected = floor
        for number in entries:
            if number > expected:
                text = f"is missing, with all up to entry {number - 1}: see `tidelog bucket repair`"
                self._transfer.note_damage(error(self._wal.key(expected), text))
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

    async def _publish(self, manifest: ShardManifest) -> set[str]:
        """Copy the versions up to `manifest`, and the history; returns their keys."""
        prefix = manifests_prefix(self._shard)
        listed = await self._transfer.entries(prefix, ".json")
        versions = [info for number, info in listed.items() if number <= manifest.version]
        # After the versions were listed: one that is collected later is in a block already.
        blocks = [info async for info in list_all(self._transfer.source, shard_history_prefix(self._shard))]
        present = await self._transfer.sizes(shard_history_prefix(self._shard))
        for info in blocks:
            if present.get(info.key) == info.size:
                self._transfer.skip(1, info.size)
            else:
                await self._transfer.copy(info.key, info.size)
        await self._transfer.append(f"{prefix}0", versions, f"manifest of shard {self._shard}")
        return {info.key for info in (*blocks, *versions)}

    async def _prune(self, kept: set[str], manifest: ShardManifest) -> None:
        """Remove from the target what an earlier copy had and the source no longer has, and the index of the log."""
        prefixes = [wal_prefix(self._shard), manifests_prefix(self._shard)]
        prefixes += [self._segments_prefix(manifest, topic_id) for topic_id in manifest.topics]

        async def prune(prefix: str) -> None:
            await self._transfer.delete([key for key in await self._transfer.sizes(prefix) if key not in kept])

        async for _ in in_order(prefixes, prune, at_once=TOPICS_AT_ONCE):
            pass

    def _too_fast(self) -> Unavailable:
        return Unavailable(
            f"shard {self._shard} is archived and deleted faster than it is copied: pass the brokers' delete.grace.ms "
            "with --grace, or raise it, and file.delete.delay.ms of its topics"
        )
