"""Finds objects that nothing will ever read again, and deletes them if asked to: `tidelog bucket sweep`.

    sweep = BucketSweep(store, topics, runtime, SweepSettings(delete=True))
    async for stray in sweep.strays():
        print(stray.key, stray.reason.value, stray.deleted)

- **uploads**: segments and lists that no manifest names. A worker crashed, or lost a race, between upload and manifest;
- **deleted topics**: objects that a worker wrote for a topic after the topic's objects had been removed;
- **staging**: areas of dead jobs (`layout.staging_prefix`), but for the newest marks of a sink (`staged_areas`);
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

- uploads with records that the manifest does not cover (`orphans`): the archiver needs time, or a manifest was
  lost, which `verify` reports and a person must repair;
- topics that the journal does not know: a topic counts as deleted only if the journal says so;
- shards whose manifest, and topics whose list cannot be read;
- sinks with a batch that is committed and not published (`staged_areas`);
- unfinished uploads that the store does not let the sweep list or remove.

A sweep may be interrupted at any point, and two may run at once: each deletes only what was garbage already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby

from tidelog.storage.bucket.finding import UNREADABLE, Finding, unreadable
from tidelog.storage.bucket.known_topics import TopicKnowledge
from tidelog.storage.bucket.sweep.orphans import NO_SHARD, OrphanSearch, Upload
from tidelog.storage.bucket.sweep.staged_areas import dead_areas
from tidelog.storage.bucket.sweep.sweep_report import Reason, Stray, SweepReport
from tidelog.storage.errors import Denied, Unavailable
from tidelog.storage.layout import staging_prefix
from tidelog.storage.object_store import ObjectInfo, ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.partial_uploads import PartialUpload, partial_uploads_of

DAY_MS = 86_400_000
PAGES_AT_ONCE = 16
ORPHANS_MAX = 10_000
"""So many orphans are in memory before they are deleted. One version of a shard's manifest serves all of them."""
PARTIAL_MAX = 10_000
"""So many unfinished uploads are removed, after their listing. The next sweep finds the others."""
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


class BucketSweep:
    """One sweep over `store`. `report` grows with it."""

    def __init__(
        self, store: ObjectStore, topics: TopicKnowledge, runtime: Runtime, settings: SweepSettings | None = None
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._settings = settings or SweepSettings()
        self._probing = asyncio.Lock()
        self._now_ms: int | None = None
        self.report = SweepReport()
        self._search = OrphanSearch(store, topics, runtime, self._is_ripe, self._leave)

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
        async with aclosing(self._search.orphans(pages_at_once=self._settings.pages_at_once)) as found:
            async for orphans in found:
                waiting += orphans
                if len(waiting) >= ORPHANS_MAX or not self._settings.delete:
                    for stray in await self._swept_orphans(waiting):
                        yield stray
                    waiting = []
        for stray in await self._swept_orphans(waiting):
            yield stray

    async def _swept_orphans(self, orphans: Sequence[Upload]) -> list[Stray]:
        """`orphans`, after their deletion if they are still named by nothing."""
        strays: list[Stray] = []
        for shard, of_shard in groupby(sorted(orphans, key=_shard), key=_shard):
            uploads: Sequence[Upload] = tuple(of_shard)
            if self._settings.delete and shard != NO_SHARD:
                try:
                    uploads = await self._search.fenced(shard, uploads)
                except UNREADABLE as fault:
                    self._leave(unreadable(fault))
                    continue
            for is_deleted, infos in groupby(uploads, key=self._search.is_deleted):
                reason = Reason.DELETED_TOPIC if is_deleted else Reason.UPLOAD
                strays += await self._swept([upload.info for upload in infos], reason)
        return strays

    def _leave(self, finding: Finding) -> None:
        self.report.leave(finding.key, finding.text)

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
        async for page in dead_areas(self._store, self._is_ripe, self._leave):
            for stray in await self._swept(page, Reason.STAGING):
                yield stray

    async def _partial(self) -> AsyncIterator[Stray]:
        uploads = partial_uploads_of(self._store)
        if uploads is None:
            return
        ripe: list[tuple[PartialUpload, int]] = []
        async for upload in uploads.pending():
            age_ms = await self._age_ms(upload.touched_ms)
            if age_ms < self._settings.grace_ms:
                self.report.add_young(upload.size_bytes)
            elif len(ripe) < PARTIAL_MAX:
                ripe.append((upload, age_ms))
        for upload, age_ms in ripe:
            if self._settings.delete:
                await uploads.abort(upload)
            yield Stray(upload.key, upload.size_bytes, Reason.PARTIAL, age_ms, self._settings.delete)


def _shard(upload: Upload) -> int:
    return upload.place.shard


async def store_now_ms(store: ObjectStore, probe_id: str) -> int:
    """The time by the store's clock, in ms since 1970 UTC: that of an object written now and removed. Three
    requests."""
    key = f"{staging_prefix(f'sweep-{probe_id}')}probe"
    await store.put(key, b"what time is it?")
    now_ms = (await store.head(key)).modified_ms
    await store.delete(key)
    return now_ms
