"""Read and append versions of a partition's manifest, which is a numbered object log.

To append, a worker creates version v + 1. If two workers race, one create fails, and that worker starts over from the
other's version. So one worker at a time adds and removes segments, without a lock (inv. 5). A version of a long list is
stored as the difference to an older one (`manifest_codec`), which is read with it and kept for later versions.

A worker that appends now and then, such as the archiver, need not ask which version is the newest: it continues from
the version that it made itself (`known`), and the create fails if that is no longer the newest.

Hazard: version numbers can be reused. Garbage collection deletes old versions (`upkeep.collect`). A worker that stalled
after reading version v could then create v + 1 a second time, and readers would never see its segments.
Defence: `append` checks the log again unless its answer arrived within `FLOOR_TRUST_S` of the last proof that v was the
newest version. `floor_trust` explains why that bound is safe. The check is:

- A HEAD of v, if this worker appended v. Versions are deleted in ascending order, and only bases stay. So if v is no
  base and still exists, v + 1 was never deleted, and this create was its first.
- Otherwise a LIST of the versions after v + 1.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from tidelog.storage.errors import Conflict, Corrupt, NotFound
from tidelog.storage.layout import TopicPartition, manifest_prefix
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import grown
from tidelog.storage.manifests.manifest_codec import (
    WHOLE_SEGMENTS_MAX,
    StoredDifference,
    decode_version,
    encode_version,
    may_be_base,
    put_on,
    stored_part,
)
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock, SystemClock
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S

LARGE_BYTES = 1024 * 1024
"""A larger object is decoded in a thread, so that a list of a hundred thousand segments does not block other tasks."""


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
        self._asked = False  # whether `_latest` was read or appended, and no append is in doubt
        self._tag: str | None = None  # the store's tag of `_latest`, if it was appended here
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
        """The newest version as it was last known, to append to: `append` fails if it is no longer the newest. None
        before `latest`, and after a failed append."""
        return self._latest if self._asked else None

    def versions(self, start: int = 0) -> AsyncIterator[int]:
        """The numbers of the versions from `start` on that exist now, ascending."""
        return self._log.numbers(start)

    async def latest(self) -> Manifest:
        """The newest version, or one of number -1 if there is none yet. One LIST, a GET unless that version is known
        already, and another GET for its base, unless that is. Raises `Corrupt`."""
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
        """Whether the version that `latest` returned is still the newest, by one HEAD of the next one; if False, call
        `latest`.

        The next version may have been collected if this one was the newest long ago. Within `FLOOR_TRUST_S` it cannot
        have been (`floor_trust`), so within that time its absence is proof."""
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
        """One version, or the part of it in its own object, in one request. Raises `NotFound`, `Corrupt`."""
        key = self.key(version)
        data = (await self._log.read(version)).data
        large = len(data) > LARGE_BYTES
        found = await asyncio.to_thread(decode_version, key, data) if large else decode_version(key, data)
        manifest = stored_part(found)
        if (manifest.topic_partition, manifest.version) != (self._latest.topic_partition, version):
            raise Corrupt(key, "is the manifest of another partition or version")
        return found

    async def delete(self, version: int) -> None:
        """Remove an old version, whose step is in the history; that it is absent is no error."""
        await self._log.delete(version)

    async def append(self, manifest: Manifest, kind: ChangeKind = ChangeKind.ARCHIVE) -> Manifest:
        """Append `manifest`, made from version ``manifest.version`` that `latest` returned, as the next version.
        Returns it as it was stored: segments that left the list are its garbage now.

        Raises `Conflict` if another version took the number: start over from `latest`. If the stored body is the same
        as this one, the append succeeded, and an earlier answer was lost. Segment ids make a body unique. Two workers
        can only write the same body if it adds no segment, and then the result is what both wanted.
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
        """A version, and its base, which may be itself."""
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
        """Raise `conflict` unless the stored version has the body that was to be created. Returns its tag."""
        try:
            found = await self._log.read(appended.version)
        except NotFound:
            raise conflict from None  # it was collected meanwhile
        if found.data != body:
            raise conflict
        return found.info.version

    async def _predecessor_is_there(self) -> bool:
        """Whether the version that was appended to was made here and still exists: then the next one was never
        deleted."""
        if self._tag is None or may_be_base(self._latest):
            return False
        try:
            return await self._log.version_of(self._latest.version) == self._tag
        except NotFound:
            return False

    async def _expect_first(self, appended: Manifest) -> None:
        """Raise `Conflict` unless the number of `appended` was never used before: no later version exists, or the next
        one was made from `appended`."""
        following = (await self._log.page(self.key(appended.version))).entries
        if not following:
            return
        after = following[0].number
        if after == appended.version + 1 and stored_part(await self.stored(after)).previous_head == appended.head:
            return
        raise Conflict(f"{self.key(appended.version)} was used and collected: start over from the latest version")
