"""Read and append versions of a shard's manifest, which is a numbered object log, and the lists that versions name.

To append, a worker creates version v + 1. If two workers race, one create fails, and that worker starts over from the
other's version. So one worker at a time changes a shard's archive, without a lock (inv. 5). A list is written before
the version that names it; a crash in between leaves an orphan, which the sweep finds.

A worker that appends now and then, such as the archiver, need not ask which version is the newest: it continues from
the version that it made itself (`known`), and the create fails if that is no longer the newest.

Hazard: version numbers can be reused. Garbage collection deletes old versions (`upkeep.collect`). A worker that stalled
after reading version v could then create v + 1 a second time, and readers would never see its segments.
Defence: `append` checks the log again unless its answer arrived within `FLOOR_TRUST_S` of the last proof that v was the
newest version. `floor_trust` explains why that bound is safe. The check is:

- A HEAD of v, if this worker appended v. Versions are deleted in ascending order. So if that v still exists, v + 1 was
  never deleted, and this create was its first. On S3 a tag follows from the bytes. So each worker puts an id of its own
  into them (`ShardManifest.writer`): otherwise a rival that stalled, too, could restore v by the same change.
- Otherwise a LIST of the versions after v + 1.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from cachetools import LRUCache

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.layout import list_key, manifests_prefix
from tidelog.storage.manifests.list_codec import decode_list, encode_list
from tidelog.storage.manifests.segment_list import DoesNotApply
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, applied
from tidelog.storage.manifests.shard_values import Garbage
from tidelog.storage.manifests.topic_state import ListRef, TopicBase, TopicState
from tidelog.storage.manifests.version_codec import decode_version, encode_version
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.single_flight import SingleFlight
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S

CHANGES_MAX = 8
LARGE_BYTES = 1024 * 1024
"""A larger object is decoded in a thread, so that a list of a hundred thousand segments does not block other tasks."""
DIFFERENCES_MIN = 16_384
"""Fewer differences of a topic (spans and states) never cause a new list. They take some 10 bytes each. With a topic of
1,000 partitions, 50 passes made versions of 87 kB on average and 162 kB at most, 3 lists, and took 18 ms of CPU time an
append; with a bound of 256 there were 26 lists, and with 65,536, versions of 505 kB."""
DIFFERENCES_SHARE = 8
"""A topic gets a new list when its differences are more than this fraction (one in 8) of it."""
LISTS_BYTES = 64 * 1024 * 1024
"""Stored bytes of the lists that are kept in memory, where they take three times as much."""


class ShardLog:
    """The manifest of `shard`. One object serves all tasks of a process, which take turns. It is also the source of the
    log's floor (`wal.floor.Floors`)."""

    def __init__(self, store: ObjectStore, shard: int, runtime: Runtime, *, lists_bytes: int = LISTS_BYTES) -> None:
        self.shard = shard
        self._store = store
        self._log = ObjectLog(store, manifests_prefix(shard), ".json")
        self._runtime = runtime
        self._writer = runtime.entropy.new_id()
        self._clock = runtime.clock
        self._turn = asyncio.Lock()
        self._latest = ShardManifest(shard)
        self._known_s = -math.inf  # when `_latest` was known to be the newest
        self._asked = False  # whether `_latest` was read or appended, and no append is in doubt
        self._tag: str | None = None  # the store's tag of `_latest`, if it was appended here
        self._bases: LRUCache[str, tuple[TopicBase, int]] = LRUCache(lists_bytes, lambda kept: kept[1])
        self._reads: SingleFlight[str, TopicBase] = SingleFlight()

    def key(self, version: int) -> str:
        """The name of `version`."""
        return self._log.key(version)

    @property
    def known(self) -> ShardManifest | None:
        """The newest version as it was last known, to append to: `append` fails if it is no longer the newest. None
        before `latest`, and after a failed append."""
        return self._latest if self._asked else None

    @property
    def known_at_s(self) -> float:
        """The last moment at which `latest` is known to have been the newest version."""
        return self._known_s

    def versions(self, start: int = 0) -> AsyncIterator[int]:
        """The numbers of the versions from `start` on that exist now, ascending."""
        return self._log.numbers(start)

    async def latest(self) -> ShardManifest:
        """The newest version, or one of number -1 if there is none yet. One LIST, and a GET unless that version is
        known already. Raises `Corrupt`, `Unavailable`."""
        async with self._turn:
            return await self._read_latest()

    async def newest(self) -> ShardManifest:
        """Like `latest`, but by one HEAD of the next version if the newest one is known. The next version may have been
        collected if this one was the newest long ago, so its absence is proof within `FLOOR_TRUST_S` only."""
        async with self._turn:
            return self._latest if self._asked and await self._is_newest() else await self._read_latest()

    async def floor(self) -> Floor:
        """The floor in the newest version; requests as `newest`."""
        return (await self.newest()).floor

    async def read(self, version: int) -> ShardManifest:
        """One version, without its lists. Raises `NotFound`, `Corrupt`."""
        key = self.key(version)
        data = (await self._log.read(version)).data
        found = (
            await asyncio.to_thread(decode_version, key, data) if len(data) > LARGE_BYTES else decode_version(key, data)
        )
        if (found.shard, found.version) != (self.shard, version):
            raise Corrupt(key, "is the manifest of another shard or version")
        return found

    async def with_lists(self, manifest: ShardManifest, topic_ids: Iterable[str]) -> ShardManifest:
        """`manifest` with the lists of these topics: one GET for each that is not in memory. Topics that it does not
        have are passed over. Raises `Corrupt`, naming a list; `Conflict` if the version is so old that one was
        collected: start over from `latest`."""
        wanted = [topic_id for topic_id in topic_ids if lacks_list(manifest, topic_id)]
        if not wanted:
            return manifest
        bases = await asyncio.gather(*(self._base(manifest, topic_id) for topic_id in wanted))
        read = {
            topic_id: replace(manifest.topics[topic_id], base=base)
            for topic_id, base in zip(wanted, bases, strict=True)
        }
        return replace(manifest, topics={**manifest.topics, **read})

    async def change(
        self, topic_ids: Iterable[str], plan: Callable[[ShardManifest], ManifestChange | None]
    ) -> ShardManifest:
        """Append the change that `plan` makes of the newest version, in which the lists of `topic_ids` were read.
        `plan` is called again if another worker was faster; None: there is nothing to change. Returns the newest
        version. Raises `Conflict` if others were faster `CHANGES_MAX` times."""
        topic_ids = tuple(topic_ids)
        manifest = self.known or await self.latest()
        for _ in range(CHANGES_MAX):
            try:
                manifest = await self.with_lists(manifest, topic_ids)
                change = plan(manifest)
                return manifest if change is None else await self.append(change, manifest)
            except Conflict:
                manifest = await self.latest()
        raise Conflict(f"other workers were faster {CHANGES_MAX} times")

    async def append(self, change: ManifestChange, before: ShardManifest | None = None) -> ShardManifest:
        """Append the version that `change` makes of `before` (None: the newest that is known). Returns it.

        Raises `Conflict` if `before` is not the newest version, or if the change does not fit it: start over from
        `latest`. If the stored body is the same as this one, the append succeeded, and an earlier answer was lost.
        """
        async with self._turn:
            if before is not None and before.version != self._latest.version:
                raise Conflict(f"version {before.version} of shard {self.shard} is not the newest: start over")
            return await self._append(change, before or self._latest)

    async def delete(self, version: int) -> None:
        """Remove an old version, whose step is in the history; that it is absent is no error."""
        await self._log.delete(version)

    async def _read_latest(self) -> ShardManifest:
        tried = -1
        while True:
            asked_s = self._clock.monotonic()
            newest = await self._log.newest(self._latest.version)
            if newest == self._latest.version:
                break
            try:
                self._latest, self._tag = await self.read(newest), None
                if self._clock.monotonic() - asked_s <= FLOOR_TRUST_S:
                    break
                self._asked = False  # it may have been collected and created again before it was read: look again
            except (NotFound, Corrupt):
                if newest == tried:
                    raise
                tried = newest  # it may have been collected while this process was paused: look again
        self._known_s, self._asked = asked_s, True
        return self._latest

    async def _is_newest(self) -> bool:
        asked_s, trusted_until_s = self._clock.monotonic(), self._known_s + FLOOR_TRUST_S
        if asked_s >= trusted_until_s:
            return False
        try:
            await self._log.version_of(self._latest.version + 1)
        except NotFound:
            if self._clock.monotonic() < trusted_until_s:
                self._known_s = asked_s
                return True
        return False

    async def _append(self, change: ManifestChange, before: ShardManifest) -> ShardManifest:
        before = await self.with_lists(before, (*change.topics, *change.dropped))
        try:
            made = applied(before, change, self._clock.now_ms())
        except DoesNotApply as error:
            raise Conflict(f"the change does not fit version {before.version}: {error}") from error
        made = await self._with_new_lists(replace(made, writer=self._writer), change.topics)
        body = await asyncio.to_thread(encode_version, made)
        sent_s = self._clock.monotonic()
        self._asked = False  # until it is known how this ends
        try:
            tag = await self._log.create(made.version, body)
        except Conflict as conflict:
            tag = await self._expect_own(made.version, body, conflict)
        if self._clock.monotonic() - self._known_s > FLOOR_TRUST_S and not await self._predecessor_is_there():
            await self._expect_first(made)
        self._latest, self._tag, self._known_s, self._asked = made, tag, sent_s, True
        return made

    async def _base(self, manifest: ShardManifest, topic_id: str) -> TopicBase:
        stored = manifest.topics[topic_id].stored
        assert stored is not None, "only a topic with a list lacks its content"
        if kept := self._bases.get(stored.key):
            return kept[0]
        return await self._reads.run(stored.key, lambda: self._read_base(manifest, topic_id, stored))

    async def _read_base(self, manifest: ShardManifest, topic_id: str, stored: ListRef) -> TopicBase:
        try:
            data = (await self._store.get(stored.key)).data
        except NotFound as error:
            raise await self._list_fault(manifest, stored.key) from error
        base = await asyncio.to_thread(decode_list, stored, manifest.topics[topic_id].name, topic_id, self.shard, data)
        self._keep(stored, base)
        return base

    async def _list_fault(self, manifest: ShardManifest, key: str) -> Conflict | Corrupt:
        """Why the list `key` that `manifest` names does not exist: the version is old, or the list is lost."""
        if await self._log.newest(manifest.version) == manifest.version:
            return Corrupt(key, f"is named by the manifest of shard {self.shard} and does not exist")
        if manifest.version == self._latest.version:
            self._asked = False
        return Conflict(f"version {manifest.version} is old, and {key} was collected: start over from the latest")

    def _keep(self, stored: ListRef, base: TopicBase) -> None:
        if stored.size_bytes <= self._bases.maxsize:
            self._bases[stored.key] = base, stored.size_bytes

    async def _with_new_lists(self, made: ShardManifest, changed: Iterable[str]) -> ShardManifest:
        """`made`, in which the changed topics with many differences have new lists, which are written here."""
        grown = [topic_id for topic_id in changed if _needs_list(made.topics[topic_id])]
        if not grown:
            return made
        listed = {topic_id: await self._write_list(topic_id, made.topics[topic_id]) for topic_id in grown}
        former = [stored for topic_id in grown if (stored := made.topics[topic_id].stored)]
        now_ms = self._clock.now_ms()
        left = [Garbage(stored.key, stored.size_bytes, made.version, now_ms) for stored in former]
        return replace(made, topics={**made.topics, **listed}, garbage=(*made.garbage, *left))

    async def _write_list(self, topic_id: str, topic: TopicState) -> TopicState:
        key = list_key(self.shard, topic_id, self._runtime.entropy.new_id())
        base = await asyncio.to_thread(topic.consolidated)
        stored, body = await asyncio.to_thread(encode_list, key, topic.name, topic_id, self.shard, base)
        await self._store.create(key, body)
        self._keep(stored, base)
        return topic.listed(stored, base)

    async def _expect_own(self, version: int, body: bytes, conflict: Conflict) -> str:
        """Raise `conflict` unless the stored version has the body that was to be created. Returns its tag."""
        try:
            found = await self._log.read(version)
        except NotFound:
            raise conflict from None  # it was collected meanwhile
        if found.data != body:
            raise conflict
        return found.info.version

    async def _predecessor_is_there(self) -> bool:
        """Whether the version that was appended to was made here and still exists: then the next one was never
        deleted."""
        if self._tag is None:
            return False
        try:
            return await self._log.version_of(self._latest.version) == self._tag
        except NotFound:
            return False

    async def _expect_first(self, made: ShardManifest) -> None:
        """Raise `Conflict` unless the number of `made` was never used before: no later version exists, or the next one
        was made from `made`."""
        following = (await self._log.page(self.key(made.version))).entries
        if not following:
            return
        after = following[0].number
        if after == made.version + 1 and (await self.read(after)).previous_head == made.head:
            return
        raise Conflict(f"{self.key(made.version)} was used and collected: start over from the latest version")


def lacks_list(manifest: ShardManifest, topic_id: str) -> bool:
    """Whether the list of a topic has to be read (`ShardLog.with_lists`)."""
    topic = manifest.topics.get(topic_id)
    return topic is not None and topic.base is None


def _needs_list(topic: TopicState) -> bool:
    return topic.differences > max(DIFFERENCES_MIN, topic.size // DIFFERENCES_SHARE)
