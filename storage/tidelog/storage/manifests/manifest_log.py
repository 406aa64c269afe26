"""The manifests of a partition as an object log: read the newest, append the next.

Of two workers that append version *v + 1* one wins and the other starts over from what the first made, so segments are
added and removed by one worker at a time without any lock (inv. 5). A version of a long list is stored as the
difference to an older one (`manifest_codec`); that is read with it, and kept for the versions that follow.

Old versions are collected a grace after a newer one was seen (`upkeep.collect`), and a number that was collected could
be created again, by a worker that was stalled since it read the version before. It would believe its segments in the
log, where no reader looks. So an append that was not answered within `FLOOR_TRUST_S` of when its predecessor was known
to be the newest looks once more; why less needs no look is told in `floor_trust`, of which this is the same case.

A worker that appended the version before, however long ago, looks with a HEAD of that one. Versions are deleted in
ascending order, only bases stay behind (`upkeep.collect`). So while *v*, which is no base, is there, *v + 1* was never
deleted, and whoever created it was the first. Otherwise a LIST of what follows *v + 1* tells.

So who appends now and then, as the archiver does, need not ask what is the newest: the version that it made itself is
what it takes for the newest (`known`), and the create tells whether that was right.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.floor_trust import FLOOR_TRUST_S
from tidelog.storage.layout import TopicPartition, manifest_prefix
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import grown
from tidelog.storage.manifests.manifest_codec import (
    WHOLE_SEGMENTS_MAX,
    StoredDifference,
    decode_manifest,
    decode_version,
    encode_manifest,
    encode_version,
    may_be_base,
    put_on,
    told_by,
)
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock, SystemClock

__all__ = ["ManifestLog", "decode_manifest", "encode_manifest", "grown"]

LARGE_BYTES = 1024 * 1024
"""An object above it is decoded in a thread, so that a list of a hundred thousand segments does not hold up others."""


class ManifestLog:
    """The manifests of `topic_partition` of `topic`. Not for two tasks at once."""

    def __init__(
        self, store: ObjectStore, topic: str, topic_partition: TopicPartition, clock: Clock | None = None
    ) -> None:
        prefix = manifest_prefix(topic, topic_partition.topic_id, topic_partition.partition)
        self._log = ObjectLog(store, prefix, ".json")
        self._clock = clock or SystemClock()
        self._latest = Manifest(topic_partition)
        self._known_s = -math.inf  # when `_latest` was known to be the newest
        self._asked = False  # whether `_latest` comes from the bucket, and no append is in doubt
        self._tag: str | None = None  # the store's of `_latest`, if it was made here
        self._base: Manifest | None = None

    def key(self, version: int) -> str:
        """The name of `version`."""
        return self._log.key(version)

    @property
    def known_version(self) -> int:
        """The newest version that `latest` gave or `append` made; -1 before that."""
        return self._latest.version

    @property
    def known_at_s(self) -> float:
        """The last moment at which `latest` is known to have been the newest version."""
        return self._known_s

    @property
    def known(self) -> Manifest | None:
        """The newest version as it was when this was last sure of it, for who appends to it: `append` says whether it
        still is. None before `latest`, and after an append that failed."""
        return self._latest if self._asked else None

    def versions(self, start: int = 0) -> AsyncIterator[int]:
        """The numbers from `start` on that are there now, ascending."""
        return self._log.numbers(start)

    async def latest(self) -> Manifest:
        """The newest version, or one of number -1 if there is none yet. One LIST, and a GET unless that version is
        known from before; another for its base, unless that is. Raises `Corrupt`."""
        tried = -1
        while True:
            asked_s = self._clock.monotonic()
            newest = await self._log.newest(self._latest.version)
            if newest == self._latest.version:
                break
            try:
                self._latest, self._base = await self._resolved(newest)
                self._tag = None
                break
            except (NotFound, Corrupt):
                if newest == tried:
                    raise
                tried = newest  # it may have been collected while this process was paused: look again
        self._known_s = asked_s
        self._asked = True
        return self._latest

    async def renew(self) -> bool:
        """Whether the version that `latest` gave is the newest still, in one HEAD; False: ask `latest`.

        The version after it may have been collected if it was long ago that this one was the newest. Within
        `FLOOR_TRUST_S` it cannot have been (`floor_trust`), so its absence tells."""
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

    async def read(self, version: int) -> Manifest:
        """One version. Raises `NotFound`, `Corrupt`."""
        manifest, _ = await self._resolved(version)
        return manifest

    async def stored(self, version: int) -> Manifest | StoredDifference:
        """One version, or what its own object tells of it, in one request. Raises `NotFound`, `Corrupt`."""
        key = self.key(version)
        data = (await self._log.read(version)).data
        large = len(data) > LARGE_BYTES
        found = await asyncio.to_thread(decode_version, key, data) if large else decode_version(key, data)
        manifest = told_by(found)
        if (manifest.topic_partition, manifest.version) != (self._latest.topic_partition, version):
            raise Corrupt(key, "is the manifest of another partition or version")
        return found

    async def delete(self, version: int) -> None:
        """Remove an old version, whose step is in the history; that it is absent is no error."""
        await self._log.delete(version)

    async def append(self, manifest: Manifest, kind: ChangeKind = ChangeKind.ARCHIVE) -> Manifest:
        """Store `manifest`, made from version ``manifest.version`` that `latest` gave, as the version after it, and
        return it as it was stored: segments that left the list are its garbage now.

        Raises `Conflict` if there is one already: start over from `latest`. What makes a body one's own is the ids of
        the segments it adds. Two workers that write the very same body only remove segments, and removing them once is
        what both wanted, so finding one's own body means won (as when an earlier answer was lost).
        """
        assert manifest.version == self._latest.version, "a version is made from the latest one"
        appended, body = await self._encoded(grown(self._latest, manifest, kind))
        sent_s = self._clock.monotonic()
        self._asked = False  # until it is known how this ends
        try:
            tag = await self._log.create(appended.version, body)
        except Conflict as conflict:
            tag = await self._expect_own(appended, body, conflict)
        if self._clock.monotonic() - self._known_s > FLOOR_TRUST_S and not await self._predecessor_is_there():
            await self._expect_first(appended)
        self._latest, self._tag = appended, tag
        self._base = appended if appended.base_version is None else self._base
        self._known_s = sent_s
        self._asked = True
        return appended

    async def _encoded(self, manifest: Manifest) -> tuple[Manifest, bytes]:
        if len(manifest.segments) <= WHOLE_SEGMENTS_MAX:
            return encode_version(manifest, self._base)
        return await asyncio.to_thread(encode_version, manifest, self._base)

    async def _resolved(self, version: int) -> tuple[Manifest, Manifest]:
        """A version, and the whole one that it is stored on, which may be itself."""
        stored = await self.stored(version)
        if not isinstance(stored, StoredDifference):
            return stored, stored
        base_version = stored.manifest.base_version
        assert base_version is not None, "a difference has a base"
        base = self._base
        if base is None or base.version != base_version:
            base = await self._whole(version, base_version)
        return put_on(self.key(version), stored, base), base

    async def _whole(self, version: int, base_version: int) -> Manifest:
        try:
            base = await self.stored(base_version)
        except NotFound as error:
            raise Corrupt(self.key(version), f"is a difference to version {base_version}, which is missing") from error
        if isinstance(base, StoredDifference):
            raise Corrupt(self.key(version), f"is a difference to version {base_version}, which is one itself")
        return base

    async def _expect_own(self, appended: Manifest, body: bytes, conflict: Conflict) -> str:
        """That the version which is there is the one that was to be created. Returns its tag."""
        try:
            found = await self._log.read(appended.version)
        except NotFound:
            raise conflict from None  # it was collected meanwhile
        if found.data != body:
            raise conflict
        return found.info.version

    async def _predecessor_is_there(self) -> bool:
        """Whether the version that was appended to, made here, was never deleted; so neither was the one after it."""
        if self._tag is None or may_be_base(self._latest):
            return False
        try:
            return await self._log.version_of(self._latest.version) == self._tag
        except NotFound:
            return False

    async def _expect_first(self, appended: Manifest) -> None:
        """That the number of `appended` was never used before: nothing follows it, or the version after it does."""
        following = (await self._log.page(self.key(appended.version))).entries
        if not following:
            return
        after = following[0].number
        if after == appended.version + 1 and told_by(await self.stored(after)).previous_head == appended.head:
            return
        raise Conflict(f"{self.key(appended.version)} had been used and collected: start over from the latest version")
