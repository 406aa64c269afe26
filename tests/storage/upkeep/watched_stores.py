"""Stores on which something happens while a merge reads or uploads segments."""

from __future__ import annotations

import asyncio

from tests.storage.archive_scenes import NEVER, CrashingStore
from tests.storage.upkeep.merge_scenes import (
    PLACE,
    add,
    log_of,
    records_at,
    segments_of,
)

from tidelog.storage.manifests.shard_manifest import ManifestChange, TopicChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import Body, ByteRange, ObjectStore, StoredObject


class WatchedStore(CrashingStore):
    """Calls hooks before reads and uploads of segments."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, NEVER, after=False)
        self.bucket = inner

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        if key.startswith("topics/"):
            await self.before_read(key)
        return await super().get(key, byte_range)

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        await self.before_upload()
        return await super().put(key, data, if_version=if_version)

    async def before_read(self, key: str) -> None:
        """Called before a segment is read."""

    async def before_upload(self) -> None:
        """Called before a merged segment is uploaded."""


class CountingGets(WatchedStore):
    """Counts the requests that read segments."""

    gets = 0

    async def before_read(self, key: str) -> None:
        self.gets += 1


class Stalling(WatchedStore):
    """A read of a segment, the one with the number `at`, is never answered."""

    def __init__(self, inner: ObjectStore, at: int) -> None:
        super().__init__(inner)
        self.left = at
        self.reached = asyncio.Event()

    async def before_read(self, key: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            await asyncio.Event().wait()


class Growing(WatchedStore):
    """The archiver adds a run during the merge."""

    async def before_upload(self) -> None:
        await add(self.bucket, {7: records_at(7, range(5))})


class Expiring(WatchedStore):
    """Retention removes the oldest segment during the merge, and its grace passes."""

    expired = False

    async def before_read(self, key: str) -> None:
        if not self.expired:
            self.expired = True
            log = log_of(self.bucket)
            oldest = (await segments_of(self.bucket))[0]
            change = TopicChange(PLACE.topic, removed=(oldest.key,))
            await log.append(ManifestChange(ChangeKind.EXPIRE, {PLACE.topic_id: change}), await log.latest())
            await self.bucket.delete(oldest.key)
