"""Finds what nobody will ever ask for again, and deletes it if told to: `tidelog bucket sweep`.

    sweep = BucketSweep(store, topics, runtime, SweepSettings(delete=True))
    async for stray in sweep.strays():
        print(stray.key, stray.reason.value, stray.deleted)

- **uploads**: segments that no manifest names. A worker crashed, or lost a race, between upload and manifest;
- **deleted topics**: what a worker wrote for a topic after its objects had been removed;
- **staging**: areas of jobs that died (`layout.staging_prefix`);
- **partial**: multipart uploads and temporary files that never became objects (`partial_uploads`).

What was in the log once is not looked for here: entries below the floor are the archiver's to delete, garbage and old
versions of manifests the collector's (`upkeep.collect`); they stay named until they are gone.

Why nothing live goes
---------------------
*Age.* An upload is an orphan for as long as its manifest is under way. So only what is older than the grace, a day, is
looked at, and only the store's own clock tells: a probe that is written says what time it is there, and nothing is
compared with this machine's clock, which may be wrong by a day. It is written when there is something to judge, so that
a sweep of a tidy bucket writes nothing.

*Two halves of a rule.* Age alone leaves a hole: a worker may stall for longer than any grace between upload and append,
and name what the sweep has deleted. The worker's half (`upkeep.fresh_upload`): stalled for more than half its grace by
either of its clocks, it uploads anew under new ids. The sweep's half needs no clock: before it deletes any upload of a
partition it appends a version to that partition's manifest that changes nothing, a `ChangeKind.SWEEP`. The append wins
only if the manifest it judged by is still the newest; and whoever was about to append from that version or an older
one now gets `Conflict`, and starts over from the newest or, finding a sweep's version there, uploads anew. So of the
uploads listed before, none can be named any more, however long anybody stalls.

*Doubt.* An upload with offsets at or beyond the manifest's end is left alone: either its records are in the WAL and
will be archived, or its manifest was lost, which is for `verify` to tell and for a person to mend. A topic is gone if
the journal says that it was deleted, and not if it says nothing of it. Where a manifest cannot be read nothing is
judged. Unfinished uploads that the store does not let the sweep see, or remove, are left alone, and `report` says why.

A sweep may be killed anywhere, and two may run at once: each deletion is of something that was garbage already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge
from tidelog.storage.bucket.sweep_uploads import UploadSweep
from tidelog.storage.bucket.topic_listing import Listed, PartitionListing, TopicName, list_partitions
from tidelog.storage.errors import Corrupt, Denied, NotFound, Unavailable
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import STAGING_PREFIX, staging_prefix
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.partial_uploads import PartialUpload, partial_uploads_of
from tidelog.storage.runtime import Runtime

DAY_MS = 86_400_000
PARTITIONS_AT_ONCE = 16
UNFINISHED_UPLOADS = "unfinished uploads"
"""Where `SweepReport.unjudged` says that they could not be listed or removed."""


class Reason(Enum):
    """Why something is stray."""

    UPLOAD = "upload"
    DELETED_TOPIC = "deleted-topic"
    STAGING = "staging"
    PARTIAL = "partial"


@dataclass(frozen=True)
class SweepSettings:
    """`grace_ms`: nothing younger is touched; at least the workers' grace (`delete.grace.ms`). `delete`: else the sweep
    only tells. `partitions_at_once`: how many are looked at side by side, each with its listing in memory."""

    grace_ms: int = DAY_MS
    delete: bool = False
    partitions_at_once: int = PARTITIONS_AT_ONCE


@dataclass(frozen=True)
class Stray:
    """Something that nobody will ask for. `age_ms` by the store's clock."""

    key: str
    size_bytes: int
    reason: Reason
    age_ms: int
    deleted: bool


@dataclass
class SweepReport:
    """What a sweep found: count and bytes by reason, and of what was too young to be judged. `unjudged`: partitions and
    topics that were left alone, and why."""

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
        self._entropy = runtime.entropy
        self._settings = settings or SweepSettings()
        self._uploads = UploadSweep(store, runtime)
        self._asking = asyncio.Lock()
        self._now_ms: int | None = None
        self._known: Mapping[str, KnownTopic] = {}
        self._gone: dict[TopicName, None] = {}
        self.report = SweepReport()

    async def strays(self) -> AsyncGenerator[Stray, None]:
        """Everything that is stray, after it was deleted if that was asked for. Raises `Unavailable`, `Denied`,
        `Corrupt` for a journal that cannot be read."""
        partitions, at_once = list_partitions(self._store), self._settings.partitions_at_once
        async for _, strays in in_order(partitions, self._of_partition, at_once=at_once):
            for stray in strays:
                yield self._told(stray)
        for name in self._gone:
            async for info in list_all(self._store, name.prefix):
                if await self._is_ripe(info):
                    yield self._told(await self._swept(info, Reason.DELETED_TOPIC))
        async for stray in self._staging():
            yield self._told(stray)
        try:
            async for stray in self._partial():
                yield self._told(stray)
        except (Denied, Unavailable) as error:  # all else is done, and is not to be done again for this
            self.report.unjudged[UNFINISHED_UPLOADS] = str(error)

    def _told(self, stray: Stray) -> Stray:
        self.report.add(stray)
        return stray

    async def _age_ms(self, written_ms: int) -> int:
        """How long ago that was by the store's clock, which is asked once, the first time."""
        async with self._asking:
            if self._now_ms is None:
                self._now_ms = await store_now_ms(self._store, self._entropy.new_id())
        return self._now_ms - written_ms

    async def _is_ripe(self, info: ObjectInfo) -> bool:
        """Whether it is old enough to be judged; what is not is counted."""
        if await self._age_ms(info.modified_ms) >= self._settings.grace_ms:
            return True
        self.report.add_young(info.size)
        return False

    async def _swept(self, info: ObjectInfo, reason: Reason) -> Stray:
        if self._settings.delete:
            await self._store.delete(info.key)
        return Stray(info.key, info.size, reason, await self._age_ms(info.modified_ms), self._settings.delete)

    # ---- topics

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
            orphans = await self._uploads.orphans(listed)
            ripe = [info for info in orphans if await self._is_ripe(info)]
            if ripe and self._settings.delete:
                ripe = await self._uploads.fenced(listed, ripe)
        except Corrupt as error:
            self.report.unjudged[error.name] = error.reason
            return ()
        return [await self._swept(info, Reason.UPLOAD) for info in ripe if await self._is_there(info.key)]

    async def _is_there(self, key: str) -> bool:
        """Whether what was listed is there still: it may have been garbage that was collected since."""
        try:
            await self._store.head(key)
        except NotFound:
            return False
        return True

    async def _topic(self, name: TopicName) -> KnownTopic | None:
        """The topic whose objects were listed; None if it is no more, or was never heard of. The journal is asked after
        the listing, so that a topic that has objects is in it."""
        if name.topic_id not in self._known:
            self._known = await self._topics.topics()
        if topic := self._known.get(name.topic_id):
            return topic
        if await self._topics.deleted([name.topic_id]):
            self._gone[name] = None
        else:
            self.report.unjudged[name.prefix] = "the journal never heard of this topic"
        return None

    # ---- what is no topic's

    async def _staging(self) -> AsyncIterator[Stray]:
        """Areas in which nothing was written for a grace: a job that lives goes on writing, and keeps all of it."""
        async for job in _areas(self._store):
            area = [info async for info in list_all(self._store, staging_prefix(job))]
            ripe = [info for info in area if await self._is_ripe(info)]
            if len(ripe) == len(area):
                for info in ripe:
                    yield await self._swept(info, Reason.STAGING)

    async def _partial(self) -> AsyncIterator[Stray]:
        uploads = partial_uploads_of(self._store)
        if uploads is None:
            return
        pending: list[PartialUpload] = [upload async for upload in uploads.pending()]
        for upload in pending:
            age_ms = await self._age_ms(upload.touched_ms)
            if age_ms < self._settings.grace_ms:
                self.report.add_young(upload.size_bytes)
                continue
            if self._settings.delete:
                await uploads.abort(upload)
            yield Stray(upload.key, upload.size_bytes, Reason.PARTIAL, age_ms, self._settings.delete)


async def store_now_ms(store: ObjectStore, probe_id: str) -> int:
    """What time it is on the store, in ms since 1970 UTC: that of an object written now and removed. Three requests."""
    key = f"{staging_prefix(f'sweep-{probe_id}')}probe"
    await store.put(key, b"what time is it?")
    now_ms = (await store.head(key)).modified_ms
    await store.delete(key)
    return now_ms


async def _areas(store: ObjectStore) -> AsyncIterator[str]:
    """The jobs that have a staging area; a request each."""
    after = STAGING_PREFIX
    while page := await store.list(STAGING_PREFIX, start_after=after, limit=1):
        job, slash, _ = page[0].key.removeprefix(STAGING_PREFIX).partition("/")
        if slash:
            yield job
        after = f"{STAGING_PREFIX}{job}0" if slash else page[0].key  # "0" follows "/": past all of the area
