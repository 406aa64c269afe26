"""Finds objects that nothing will ever read again, and deletes them if asked to: `tidelog bucket sweep`.

    sweep = BucketSweep(store, topics, runtime, SweepSettings(delete=True))
    async for stray in sweep.strays():
        print(stray.key, stray.reason.value, stray.deleted)

- **uploads**: segments that no manifest names. A worker crashed, or lost a race, between upload and manifest;
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
then name an object that the sweep has deleted. The worker's half (`upkeep.fresh_upload`): a worker that stalled for
more than half its grace, by either of its clocks, uploads again under new ids. The sweep's half needs no clock: before
it deletes uploads of a partition, it appends a version that changes nothing (`ChangeKind.SWEEP`) to the partition's
manifest. That append succeeds only if the manifest that the sweep judged by is still the newest. A worker that was
about to append after that version or an older one now gets `Conflict`; it starts over from the newest version or, if it
finds the sweep's version there, uploads again. So no manifest can name the listed uploads any more, however long a
worker stalls.

*Doubt.* The sweep leaves alone uploads with offsets at or beyond the end of the manifest: either their records are in
the WAL and will be archived, or a manifest was lost, which `verify` reports and a person must repair. It also leaves
alone, and names in `report`:

- topics that the journal does not know: a topic counts as deleted only if the journal says so;
- partitions whose manifest cannot be read;
- unfinished uploads that the store does not let the sweep list or remove.

A sweep may be interrupted at any point, and two may run at once: each deletes only what was garbage already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum

from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge
from tidelog.storage.bucket.listing import Listed, PartitionListing, TopicName, folders, is_there, list_partitions
from tidelog.storage.errors import Conflict, Corrupt, Denied, Unavailable
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import STAGING_PREFIX, parse_segment_key, staging_prefix
from tidelog.storage.manifests.manifest import ChangeKind, Manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.partial_uploads import partial_uploads_of

DAY_MS = 86_400_000
PARTITIONS_AT_ONCE = 16
FENCE_ATTEMPTS_MAX = 8
UNFINISHED_UPLOADS = "unfinished uploads"
"""The key in `SweepReport.unjudged` for unfinished uploads that could not be listed or removed."""


class Reason(Enum):
    """Why an object is stray."""

    UPLOAD = "upload"
    DELETED_TOPIC = "deleted-topic"
    STAGING = "staging"
    PARTIAL = "partial"


@dataclass(frozen=True)
class SweepSettings:
    """`grace_ms`: younger objects are left alone; at least the workers' grace (`delete.grace.ms`). `delete`: delete
    strays instead of only naming them. `partitions_at_once`: partitions in progress, each with its listing in
    memory."""

    grace_ms: int = DAY_MS
    delete: bool = False
    partitions_at_once: int = PARTITIONS_AT_ONCE


@dataclass(frozen=True)
class Stray:
    """An object that nothing will read again. `age_ms` is measured by the store's clock."""

    key: str
    size_bytes: int
    reason: Reason
    age_ms: int
    deleted: bool


@dataclass
class SweepReport:
    """The number and bytes of the strays by reason, and of the objects that were too young to be judged. `unjudged`:
    partitions and topics that were left alone, and why."""

    found: dict[str, int] = field(default_factory=dict)
    found_bytes: dict[str, int] = field(default_factory=dict)
    deleted: int = 0
    deleted_bytes: int = 0
    young: int = 0
    young_bytes: int = 0
    unjudged: dict[str, str] = field(default_factory=dict)

    def add(self, stray: Stray) -> None:
        reason = stray.reason.value
        self.found[reason] = self.found.get(reason, 0) + 1
        self.found_bytes[reason] = self.found_bytes.get(reason, 0) + stray.size_bytes
        if stray.deleted:
            self.deleted += 1
            self.deleted_bytes += stray.size_bytes

    def add_young(self, size_bytes: int) -> None:
        self.young += 1
        self.young_bytes += size_bytes


class BucketSweep:
    """One sweep over `store`. `report` grows with it."""

    def __init__(
        self, store: ObjectStore, topics: TopicKnowledge, runtime: Runtime, settings: SweepSettings | None = None
    ) -> None:
        self._store = store
        self._topics = topics
        self._runtime = runtime
        self._settings = settings or SweepSettings()
        self._probing = asyncio.Lock()
        self._now_ms: int | None = None
        self._known: Mapping[str, KnownTopic] = {}
        self._deleted_topics: dict[TopicName, None] = {}
        self.report = SweepReport()

    async def strays(self) -> AsyncGenerator[Stray, None]:
        """Every stray object, after its deletion if `delete` is set. Raises `Unavailable`, `Denied`; `Corrupt` if the
        journal cannot be read."""
        async with aclosing(self._strays()) as strays:
            async for stray in strays:
                self.report.add(stray)
                yield stray

    async def _strays(self) -> AsyncGenerator[Stray, None]:
        partitions, at_once = list_partitions(self._store), self._settings.partitions_at_once
        async for _, strays in in_order(partitions, self._of_partition, at_once=at_once):
            for stray in strays:
                yield stray
        for name in self._deleted_topics:
            async for info in list_all(self._store, name.prefix):
                if await self._is_ripe(info):
                    yield await self._swept(info, Reason.DELETED_TOPIC)
        async for stray in self._staged():
            yield stray
        try:
            async for stray in self._partial():
                yield stray
        except (Denied, Unavailable) as error:  # the rest is done, and need not be repeated because of this
            self.report.unjudged[UNFINISHED_UPLOADS] = str(error)

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

    async def _swept(self, info: ObjectInfo, reason: Reason) -> Stray:
        if self._settings.delete:
            await self._store.delete(info.key)
        return Stray(info.key, info.size, reason, await self._age_ms(info.modified_ms), self._settings.delete)

    async def _of_partition(self, listed: Listed) -> Sequence[Stray]:
        if not isinstance(listed, PartitionListing):
            return ()
        topic = await self._topic(listed.name)
        if topic is None or topic.removing:
            return ()
        if topic.name != listed.name.topic:
            self.report.unjudged[listed.name.prefix] = f"the journal calls this topic {topic.name!r}"
            return ()
        try:
            ripe = [info for info in await self._orphans(listed) if await self._is_ripe(info)]
            if ripe and self._settings.delete:
                ripe = await self._fenced(listed, ripe)
        except Corrupt as error:
            self.report.unjudged[error.name] = error.reason
            return ()
        return [await self._swept(info, Reason.UPLOAD) for info in ripe if await is_there(self._store, info.key)]

    async def _topic(self, name: TopicName) -> KnownTopic | None:
        """The topic of listed objects; None if it was deleted or is unknown. The journal is read after the listing, so
        it knows every topic that has objects."""
        if name.topic_id not in self._known:
            self._known = await self._topics.topics()
        if topic := self._known.get(name.topic_id):
            return topic
        if await self._topics.deleted([name.topic_id]):
            self._deleted_topics[name] = None
        else:
            self.report.unjudged[name.prefix] = "the journal does not know this topic"
        return None

    async def _orphans(self, listing: PartitionListing) -> Sequence[ObjectInfo]:
        """The listed objects that the newest manifest neither lists nor keeps as garbage. Raises `Corrupt`."""
        if not listing.segments:
            return ()
        return unnamed(list(listing.segments.values()), await self._log(listing).latest())

    async def _fenced(self, listing: PartitionListing, orphans: Sequence[ObjectInfo]) -> list[ObjectInfo]:
        """Append a version after which no worker can name `orphans`; returns those that are still orphans. Returns none
        if other workers append faster than this one: a later sweep finds them again."""
        log = self._log(listing)
        for _ in range(FENCE_ATTEMPTS_MAX):
            manifest = await log.latest()
            still = unnamed(orphans, manifest)
            if not still:
                return []
            try:
                await log.append(manifest, ChangeKind.SWEEP)
            except Conflict:
                continue
            return still
        return []

    def _log(self, listing: PartitionListing) -> ManifestLog:
        return ManifestLog(self._store, listing.name.topic, listing.place, self._runtime.clock)

    async def _staged(self) -> AsyncIterator[Stray]:
        """Areas in which nothing was written for a grace. A live job keeps writing, and so keeps its whole area."""
        async for name, _ in folders(self._store, STAGING_PREFIX):
            if name.endswith("/"):
                area = [info async for info in list_all(self._store, f"{STAGING_PREFIX}{name}")]
                ripe = [info for info in area if await self._is_ripe(info)]
                if len(ripe) == len(area):
                    for info in ripe:
                        yield await self._swept(info, Reason.STAGING)

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


def unnamed(infos: Sequence[ObjectInfo], manifest: Manifest) -> list[ObjectInfo]:
    """The segments among `infos` that lie below the end of the manifest and that it does not name."""
    named = {segment.key for segment in manifest.segments} | {garbage.key for garbage in manifest.garbage}
    return [info for info in infos if info.key not in named and _ends_below(info.key, manifest.cold_end)]


def _ends_below(key: str, cold_end: int) -> bool:
    try:
        return parse_segment_key(key).last_offset < cold_end
    except Corrupt:
        return False  # not an object of Tidelog


async def store_now_ms(store: ObjectStore, probe_id: str) -> int:
    """The time by the store's clock, in ms since 1970 UTC: that of an object written now and removed. Three
    requests."""
    key = f"{staging_prefix(f'sweep-{probe_id}')}probe"
    await store.put(key, b"what time is it?")
    now_ms = (await store.head(key)).modified_ms
    await store.delete(key)
    return now_ms
