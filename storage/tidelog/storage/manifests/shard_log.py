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
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import suppress

from msgspec.structs import replace

from tidelog.storage.errors import Conflict, Corrupt, NewerFormat, NotFound, Unavailable
from tidelog.storage.in_flight import each_of
from tidelog.storage.layout import manifests_prefix
from tidelog.storage.manifests.segment_list import DoesNotApply
from tidelog.storage.manifests.shard_manifest import (
    ManifestChange,
    ShardManifest,
    applied,
    decode_version,
    encode_version,
)
from tidelog.storage.manifests.shard_values import Garbage
from tidelog.storage.manifests.topic_lists import TopicLists, lacks_list, topics_to_list
from tidelog.storage.manifests.topic_state import ListRef, TopicBase, TopicState
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S

CHANGES_MAX = 8
LOOKS_MAX = 8
"""How often the newest version is looked for, because it was collected while it was read."""
LISTS_AT_ONCE = 4
LARGE_BYTES = 64 * 1024
"""A larger version is decoded in a thread, so that it does not block other tasks; 1 MB takes 0.2 s."""
LISTS_BYTES = 64 * 1024 * 1024
"""Stored bytes of the lists of a shard that are kept in memory, where they take three times as much."""


class ShardLog:
    """The manifest of `shard`. One object serves all tasks of a process, which take turns. It is also the source of the
    log's floor (`wal.floor.Floors`). `floor_trust_s` must be at most half the grace of every collector of this log."""

    def __init__(
        self,
        store: ObjectStore,
        shard: int,
        runtime: Runtime,
        *,
        lists_bytes: int = LISTS_BYTES,
        floor_trust_s: float = FLOOR_TRUST_S,
    ) -> None:
        self.shard, self._floor_trust_s = shard, floor_trust_s
        self._store = store
        self._log = ObjectLog(store, manifests_prefix(shard), ".json")
        self._runtime, self._clock = runtime, runtime.clock
        self._writer = runtime.entropy.new_id()
        self._turn = asyncio.Lock()
        self._latest = ShardManifest(shard)  # it has no more lists than are kept in memory
        self._known_s = -math.inf  # when `_latest` was known to be the newest
        self._asked = False  # whether `_latest` was read or appended, and no append is in doubt
        self._tag: str | None = None  # the store's tag of `_latest`, if it was appended here
        self._lists = TopicLists(store, shard, runtime, lists_bytes)

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
        return (await self._read(version))[0]

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
        self._latest = self._lists.only_kept(self._latest)
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

    async def _read(self, version: int) -> tuple[ShardManifest, str]:
        """A version and its tag."""
        key, stored = self.key(version), await self._log.read(version)
        large = len(stored.data) > LARGE_BYTES
        found = await asyncio.to_thread(decode_version, key, stored.data) if large else decode_version(key, stored.data)
        if (found.shard, found.version) != (self.shard, version):
            raise Corrupt(key, "is the manifest of another shard or version")
        return found, stored.info.version

    async def _read_latest(self) -> ShardManifest:
        """A version that is listed as the newest may be collected, and even created again, before it is read. Then the
        read takes longer than the trust, and it finds no object or one of another tag. So each look but the first
        means that a grace has passed and newer versions exist."""
        damaged = -1
        for _ in range(LOOKS_MAX):
            asked_s = self._clock.monotonic()
            newest = await self._log.newest_entry(self._latest.version)
            if newest is None:
                self._known_s, self._asked = asked_s, True
                return self._latest
            self._asked = False
            try:
                found, tag = await self._read(newest.number)
            except (NotFound, Corrupt):
                if newest.number == damaged:
                    raise
                damaged = newest.number
                continue
            if tag == newest.version or self._clock.monotonic() - asked_s <= self._floor_trust_s:
                self._latest, self._tag, self._known_s, self._asked = found, None, asked_s, True
                return found
        raise Unavailable(
            f"{LOOKS_MAX} times, the newest version of shard {self.shard} was deleted before it was read: the store "
            "answers later than the grace of its collector. Try again."
        )

    async def _is_newest(self) -> bool:
        asked_s, trusted_until_s = self._clock.monotonic(), self._known_s + self._floor_trust_s
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
        if self._clock.monotonic() - self._known_s > self._floor_trust_s and not await self._predecessor_is_there():
            await self._expect_first(made)
        self._latest, self._tag, self._known_s, self._asked = self._lists.only_kept(made), tag, sent_s, True
        return made

    async def _base(self, manifest: ShardManifest, topic_id: str) -> TopicBase:
        topic = manifest.topics[topic_id]
        try:
            return await self._lists.read(topic_id, topic)
        except NotFound as error:
            raise await self._list_fault(manifest, topic) from error

    async def _list_fault(self, manifest: ShardManifest, topic: TopicState) -> Conflict | Corrupt:
        """Why the list of `topic` in `manifest` does not exist: the version is old, or the list is lost."""
        key = topic.stored.key if topic.stored else topic.name
        if await self._log.newest(manifest.version) == manifest.version:
            return Corrupt(key, f"is named by the manifest of shard {self.shard} and does not exist")
        if manifest.version == self._latest.version:
            self._asked = False
        return Conflict(f"version {manifest.version} is old, and {key} was collected: start over from the latest")

    async def _with_new_lists(self, made: ShardManifest, changed: Collection[str]) -> ShardManifest:
        """`made`, in which topics with many differences have new lists, which are written here. A topic whose list is
        damaged stays as it is."""
        listed: dict[str, TopicState] = {}
        former: list[ListRef] = []

        async def renew(topic_id: str) -> None:
            with suppress(Corrupt, NewerFormat):
                topic = (await self.with_lists(made, [topic_id])).topics[topic_id]
                listed[topic_id] = await self._lists.write(topic_id, topic)
                former.extend([topic.stored] if topic.stored else [])

        await each_of(topics_to_list(made.topics, changed), renew, at_once=LISTS_AT_ONCE)
        now_ms = self._clock.now_ms()
        left = [Garbage(stored.key, stored.size_bytes, made.version, now_ms) for stored in former]
        return replace(made, topics={**made.topics, **listed}, garbage=(*made.garbage, *left))

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
