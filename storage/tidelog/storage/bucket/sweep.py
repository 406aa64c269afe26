"""Finds objects that nothing will ever read again, and deletes them if asked to: `tidelog bucket sweep`.

    sweep = BucketSweep(store, topics, runtime, SweepSettings(delete=True))
    async for stray in sweep.strays():
        print(stray.key, stray.reason.value, stray.deleted)

- **uploads**: segments and lists that no manifest names. A worker crashed, or lost a race, between upload and manifest;
- **deleted topics**: objects that a worker wrote for a topic after the topic's objects had been removed;
- **staging**: areas of dead jobs (`layout.staging_prefix`);
- **partial**: multipart uploads and temporary files that never became objects (`partial_uploads`).

The sweep does not look at objects that were part of a log once. The archiver deletes entries below the floor, the
collector (`upkeep.collect`) deletes garbage and old manifest versions, and the writer of a journal of groups deletes
its covered entries; these stay named until they are deleted.

Why no live object is deleted
-----------------------------
*Age.* An upload looks like an orphan until its manifest is appended. So the sweep judges only objects older than the
grace (a day). Their age is measured by the store's clock alone, because this machine's clock may be wrong by a day: the
sweep writes a probe object and reads its time. It writes the probe only when there is something to judge, so a sweep
of a tidy bucket writes nothing.

*Two halves of a rule.* Age is not enough: a worker may stall for longer than any grace between upload and append, and
then name an object that the sweep has deleted. The worker's half (`manifests.shard_upload`): a worker that stalled for
more than half its grace, by either of its clocks, uploads again under new ids. The sweep's half needs no clock: before
it deletes uploads of a shard, it appends a version that changes nothing (`ChangeKind.SWEEP`) to the shard's manifest.
That append succeeds only if the manifest that the sweep judged by is still the newest. A worker that was about to
append after that version or an older one now gets `Conflict`; it starts over from the newest version and, because it
finds the sweep's version there, uploads again. So no manifest can name the listed uploads any more, however long a
worker stalls. One such version serves all orphans of a shard.

*Doubt.* The sweep leaves alone, and names in `report`:

- uploads with records that the manifest does not cover (`sweep_orphans`): the archiver needs time, or a manifest was
  lost, which `verify` reports and a person must repair;
- topics that the journal does not know: a topic counts as deleted only if the journal says so;
- shards whose manifest, and topics whose list cannot be read;
- unfinished uploads that the store does not let the sweep list or remove.

A sweep may be interrupted at any point, and two may run at once: each deletes only what was garbage already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge
from tidelog.storage.bucket.listing import SegmentPage, folders, list_segments, shards_in
from tidelog.storage.bucket.sweep_orphans import NO_SHARD, Judged, ShardUploads, Upload
from tidelog.storage.bucket.sweep_report import Reason, Stray, SweepReport
from tidelog.storage.errors import Corrupt, Denied, Unavailable
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import (
    STAGING_PREFIX,
    TOPICS_PREFIX,
    lists_prefix,
    staging_prefix,
    topic_id_of_list,
)
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.partial_uploads import partial_uploads_of

DAY_MS = 86_400_000
PAGES_AT_ONCE = 16
ORPHANS_MAX = 10_000
"""So many orphans are in memory before they are deleted. One version of a shard's manifest serves all of them."""
UNFINISHED_UPLOADS = "unfinished uploads"
"""The key in `SweepReport.unjudged` for unfinished uploads that could not be listed or removed."""


@dataclass(frozen=True)
class SweepSettings:
    """`grace_ms`: younger objects are left alone; at least the workers' grace (`delete.grace.ms`). `delete`: delete
    strays instead of only naming them. `pages_at_once`: pages of the listing in progress, with the lists of their
    topics in memory."""

    grace_ms: int = DAY_MS
    delete: bool = False
    pages_at_once: int = PAGES_AT_ONCE


_SHARD = attrgetter("shard")


class BucketSweep:
    """One sweep over `store`. `report` grows with it."""

    def __init__(
        self, store: ObjectStore, topics: TopicKnowledge, runtime: Runtime, settings: SweepSettings | None = None
    ) -> None:
        self._store = store
        self._topics = topics
        self._runtime = runtime
        self._settings = settings or SweepSettings()
        self._uploads = ShardUploads(store, runtime, self._settings.pages_at_once)
        self._probing = asyncio.Lock()
        self._now_ms: int | None = None
        self._known: Mapping[str, KnownTopic] = {}
        self._deleted_ids: set[str] = set()
        self.report = SweepReport()

    async def strays(self) -> AsyncGenerator[Stray, None]:
        """Every stray object, after its deletion if `delete` is set. Raises `Unavailable`, `Denied`; `Corrupt` if the
        journal cannot be read."""
        async with aclosing(self._strays()) as strays:
            async for stray in strays:
                self.report.add(stray)
                yield stray

    async def _strays(self) -> AsyncGenerator[Stray, None]:
        async for stray in self._orphans():
            yield stray
        async for stray in self._staged():
            yield stray
        try:
            async for stray in self._partial():
                yield stray
        except (Denied, Unavailable) as error:  # the rest is done, and need not be repeated because of this
            self.report.unjudged[UNFINISHED_UPLOADS] = str(error)

    async def _orphans(self) -> AsyncIterator[Stray]:
        """Orphans are deleted together, so that a shard gets one version for all of them."""
        waiting: list[Upload] = []
        async with aclosing(in_order(self._listed(), self._judged, at_once=self._settings.pages_at_once)) as judged:
            async for _, orphans in judged:
                waiting += orphans
                if len(waiting) >= ORPHANS_MAX or not self._settings.delete:
                    for stray in await self._swept_orphans(waiting):
                        yield stray
                    waiting = []
        for stray in await self._swept_orphans(waiting):
            yield stray

    async def _listed(self) -> AsyncIterator[Sequence[Upload]]:
        """All segments and lists of the bucket, each time those of one topic and shard."""
        async for page in list_segments(self._store):
            yield _uploads_of(page)
        async for shard in shards_in(self._store):
            prefix, uploads = lists_prefix(shard), []
            async for info in list_all(self._store, prefix):
                if topic_id := topic_id_of_list(info.key):
                    uploads.append(Upload(shard, topic_id, info))
            for _, of_topic in groupby(uploads, key=lambda upload: upload.topic_id):
                yield tuple(of_topic)

    async def _judged(self, uploads: Sequence[Upload]) -> Sequence[Upload]:
        """The orphans among `uploads` of one topic and shard."""
        if not uploads or not await self._is_judgeable(uploads[0]):
            return ()
        is_deleted = uploads[0].topic_id in self._deleted_ids
        try:
            unnamed = uploads if uploads[0].shard == NO_SHARD else await self._uploads.unnamed(uploads)
            ripe = [upload for upload in unnamed if await self._is_ripe(upload.info)]
            judged = Judged(ripe) if is_deleted else await self._uploads.judged(ripe)
        except Corrupt as error:
            self.report.unjudged[error.name] = error.reason
            return ()
        if judged.doubtful:
            self.report.unjudged[judged.doubtful[0].key] = (
                f"no manifest names it, and the manifest of its shard does not cover its records (so are "
                f"{len(judged.doubtful)} objects of its topic, or more): `tidelog bucket verify` says why"
            )
        return judged.orphans

    async def _is_judgeable(self, upload: Upload) -> bool:
        """Whether the topic of `upload` is known, or is known to be deleted. The journal is read after the listing, so
        it knows every topic that has objects."""
        if upload.topic_id not in self._known and upload.topic_id not in self._deleted_ids:
            self._known = await self._topics.topics()
            if upload.topic_id not in self._known:
                self._deleted_ids.update(await self._topics.deleted([upload.topic_id]))
        topic = self._known.get(upload.topic_id)
        if topic is None:
            if upload.topic_id in self._deleted_ids:
                return True
            self.report.unjudged[upload.folder] = "the journal does not know this topic"
        elif upload.topic not in (None, topic.name):
            self.report.unjudged[upload.folder] = f"the journal calls this topic {topic.name!r}"
        else:
            return not topic.removing and upload.shard != NO_SHARD
        return False

    async def _swept_orphans(self, orphans: Sequence[Upload]) -> list[Stray]:
        """`orphans`, after their deletion if they are still named by nothing."""
        strays: list[Stray] = []
        for shard, of_shard in groupby(sorted(orphans, key=_SHARD), key=_SHARD):
            uploads: Sequence[Upload] = tuple(of_shard)
            if self._settings.delete and shard != NO_SHARD:
                try:
                    uploads = await self._uploads.fenced(uploads)
                except Corrupt as error:
                    self.report.unjudged[error.name] = error.reason
                    continue
            for is_deleted, infos in groupby(uploads, key=lambda upload: upload.topic_id in self._deleted_ids):
                reason = Reason.DELETED_TOPIC if is_deleted else Reason.UPLOAD
                strays += await self._swept([upload.info for upload in infos], reason)
        return strays

    async def _age_ms(self, written_ms: int) -> int:
        """The age by the store's clock, which is read once, at the first call."""
        async with self._probing:
            if self._now_ms is None:
                self._now_ms = await store_now_ms(self._store, self._runtime.entropy.new_id())
        return self._now_ms - written_ms

    async def _is_ripe(self, info: ObjectInfo) -> bool:
        """Whether the object is old enough to be judged; younger ones are counted."""
        if await self._age_ms(info.modified_ms) >= self._settings.grace_ms:
            return True
        self.report.add_young(info.size)
        return False

    async def _swept(self, infos: Sequence[ObjectInfo], reason: Reason) -> Sequence[Stray]:
        delete = self._settings.delete
        if delete:
            await self._store.delete_many([info.key for info in infos])
        return [Stray(info.key, info.size, reason, await self._age_ms(info.modified_ms), delete) for info in infos]

    async def _staged(self) -> AsyncIterator[Stray]:
        """Areas in which nothing was written for a grace. A live job keeps writing, and so keeps its whole area."""
        async for name, _ in folders(self._store, STAGING_PREFIX):
            if name.endswith("/"):
                area = [info async for info in list_all(self._store, f"{STAGING_PREFIX}{name}")]
                ripe = [info for info in area if await self._is_ripe(info)]
                if len(ripe) == len(area):
                    for stray in await self._swept(ripe, Reason.STAGING):
                        yield stray

    async def _partial(self) -> AsyncIterator[Stray]:
        uploads = partial_uploads_of(self._store)
        if uploads is None:
            return
        for upload in [upload async for upload in uploads.pending()]:
            age_ms = await self._age_ms(upload.touched_ms)
            if age_ms < self._settings.grace_ms:
                self.report.add_young(upload.size_bytes)
                continue
            if self._settings.delete:
                await uploads.abort(upload)
            yield Stray(upload.key, upload.size_bytes, Reason.PARTIAL, age_ms, self._settings.delete)


def _uploads_of(listed: SegmentPage | ObjectInfo) -> Sequence[Upload]:
    """The uploads of a page of the listing. Other objects count only in the folder of a topic."""
    if isinstance(listed, SegmentPage):
        name, shard = listed.place.name, listed.place.shard
        return [Upload(shard, name.topic_id, info, name.topic) for info in listed.infos]
    parts = listed.key.removeprefix(TOPICS_PREFIX).split("/", 2)
    return [Upload(NO_SHARD, parts[1], listed, parts[0])] if len(parts) == 3 else ()


async def store_now_ms(store: ObjectStore, probe_id: str) -> int:
    """The time by the store's clock, in ms since 1970 UTC: that of an object written now and removed. Three
    requests."""
    key = f"{staging_prefix(f'sweep-{probe_id}')}probe"
    await store.put(key, b"what time is it?")
    now_ms = (await store.head(key)).modified_ms
    await store.delete(key)
    return now_ms
