"""Verifies a whole bucket: `tidelog bucket verify`.

    verification = BucketVerification(store, deep=True)
    async for finding in verification.findings():
        print(finding.severity.value, finding.key, finding.text)
    print(verification.summary)

Shallow: the listing of all segments against the manifests, the header of every WAL entry, every stored version, the
newest block of the history, every list of a topic. Deep: every byte, and the whole history. With `reads_segments` off,
the bytes of segments are left to another reader, as Spark's executors.

Brokers may run at the same time, because of the order. Write-ahead logs are read first and manifests second: records
that are archived in between are in the manifests read later, so no gap appears that is none (inv. 5). The journals are
read last; that of topics knows a topic before the topic's first object exists. A suspicious object is looked at again
before it is reported.

At most `at_once` requests run at a time. In memory are the newest version of each shard, the lists of topics with
`topic_walk.LISTED_AT_ONCE` segments together (or of a single larger topic), some pages of the listing, and the
content of the write-ahead logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from tidelog.storage.bucket.copy_mark import decode_copy_mark
from tidelog.storage.bucket.finding import (
    UNREADABLE,
    Finding,
    Looked,
    Report,
    Seen,
    Summary,
    error,
    stranger,
    unreadable,
)
from tidelog.storage.bucket.known_topics import TopicKnowledge
from tidelog.storage.bucket.listing import SegmentPage, folders, list_segments, shard_of_folder, shards_in
from tidelog.storage.bucket.shard_look import ShardLooks
from tidelog.storage.bucket.topic_walk import TopicWalk
from tidelog.storage.bucket.verify.manifest_check import ManifestCheck
from tidelog.storage.bucket.verify.segments_check import SegmentsCheck
from tidelog.storage.bucket.verify.topic_check import TopicCheck
from tidelog.storage.bucket.verify.verify_state import FINDINGS_MAX, Suspicion, WalkState
from tidelog.storage.bucket.verify.wal_check import DEEP_AT_ONCE_MAX, TopicWal, check_wals
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import WeightedSemaphore
from tidelog.storage.layout import (
    COPY_KEY,
    GROUPS_PREFIX,
    MANIFESTS_PREFIX,
    META_PREFIX,
    STAGING_PREFIX,
    TOPICS_PREFIX,
    WAL_PREFIX,
)
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace

AT_ONCE = 32
PENDING_FINDINGS_MAX = 1_000
_OWN_FOLDERS = (GROUPS_PREFIX, MANIFESTS_PREFIX, META_PREFIX, TOPICS_PREFIX, WAL_PREFIX)

JournalCheck = Callable[[], AsyncIterator[Seen]]


class BucketVerification:
    """One walk, which starts at `state` if given. `topics`, `journal` and `groups` are made by a caller that can read
    the journals; without them these are not checked. `summary` grows with the walk, and `on_looked` is called at every
    step."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        deep: bool = False,
        reads_segments: bool = True,
        topics: TopicKnowledge | None = None,
        journal: JournalCheck | None = None,
        groups: JournalCheck | None = None,
        state: WalkState | None = None,
        at_once: int = AT_ONCE,
        on_looked: Callable[[], None] = lambda: None,
        runtime: Runtime | None = None,
    ) -> None:
        self._store = store
        self._deep = deep
        self._reads_segments = deep and reads_segments
        self._runtime = runtime or Runtime()
        self._topics = TopicCheck(store, self._runtime, topics)
        self._journals = [check for check in (groups, journal) if check is not None]
        self._at_once = at_once
        self._on_looked = on_looked
        self._pending: asyncio.Queue[Finding] = asyncio.Queue(PENDING_FINDINGS_MAX)
        self._looks = ShardLooks(store, self._runtime)
        self._requests = WeightedSemaphore(min(at_once, DEEP_AT_ONCE_MAX) if deep else at_once)
        self.state = state or WalkState(store.url, deep)
        self._known = set(self.state.findings)

    @property
    def summary(self) -> Summary:
        return self.state.summary

    async def findings(self) -> AsyncIterator[Finding]:
        """Each finding as soon as it is made; the findings of an interrupted walk come first. Raises `Unavailable`,
        `Denied`."""
        for finding in self.state.findings:
            yield finding
        walk = asyncio.create_task(self._walk())
        try:
            while not (walk.done() and self._pending.empty()):
                next_one = asyncio.ensure_future(self._pending.get())
                await asyncio.wait({next_one, walk}, return_when=asyncio.FIRST_COMPLETED)
                if next_one.done():
                    yield next_one.result()
                else:
                    next_one.cancel()
            await walk
        finally:
            walk.cancel()
            await asyncio.gather(walk, return_exceptions=True)

    async def _walk(self) -> None:
        if not self.state.wal_done:
            await check_top_level(self._store, self._report)
            at_once = self._at_once
            wal = await check_wals(self._store, self._runtime, self._report, deep=self._deep, at_once=at_once)
            self.state.wal, self.state.wal_done = wal, True
        await self._check_manifests()
        await self._check_segments()
        await self._topics.close(self.state, self._report)
        for check in self._journals:
            async for seen in check():
                await self._report(seen)

    async def _report(self, seen: Seen) -> None:
        if isinstance(seen, Finding) and seen in self._known:
            return
        self.state.summary = self.state.summary.after(seen)
        if isinstance(seen, Finding):
            if len(self.state.findings) < FINDINGS_MAX:
                self.state.findings.append(seen)
            await self._pending.put(seen)
        self._on_looked()

    async def _check_manifests(self) -> None:
        shards = {stretch.shard for topic in self.state.wal.values() for stretch in topic.stretches.values()}
        try:
            shards.update(await shards_in(self._store))
        except Corrupt as fault:
            await self._report(unreadable(fault))
        async for name, first in folders(self._store, MANIFESTS_PREFIX):
            if shard_of_folder(name) is None:
                await self._report(stranger(f"{MANIFESTS_PREFIX}{name}", first.size))
        for shard in sorted(shards):
            look = self._looks(shard)
            if shard in self.state.shards:
                await look.refresh()
            else:
                await ManifestCheck(self._store, look, self._report, deep=self._deep).run()
                self.state.shards.add(shard)
            if look.manifest is None:  # reported; the records in its log are no further fault
                for topic in self.state.wal.values():
                    topic.meet(shard)

    async def _check_segments(self) -> None:
        walk = TopicWalk(self._looks, self._begin, _check_page, self._stranger)
        listed = list_segments(self._store, self._looks.places(), start_after=self.state.after)
        async with aclosing(walk.over(listed)) as pages:
            async for page, suspicious in pages:
                if isinstance(page, SegmentPage):
                    self.state.suspects += [Suspicion(page.place, finding) for finding in suspicious]
                    self.state.after = page.end

    async def _begin(self, place: SegmentPlace) -> SegmentsCheck:
        wal, look = self.state.wal.get(place.topic_id) or TopicWal(), self._looks(place.shard)
        report = self._topics.unless_deleted(place.topic_id, self._report)
        check = SegmentsCheck(self._store, look, place, wal, report, deep=self._reads_segments, requests=self._requests)
        await check.begin()
        state = check.topic.state if check.topic else None
        self.state.see(place, max(state.all_partitions if state else {}, default=-1))
        if check.topic is None or state:
            wal.meet(place.shard)
        return check

    async def _stranger(self, info: ObjectInfo) -> list[Finding]:
        await self._report(stranger(info.key, info.size))
        return []


async def _check_page(page: SegmentPage, check: SegmentsCheck) -> list[Finding]:
    return await check.check(page)


async def check_top_level(store: ObjectStore, report: Report) -> None:
    """Report each top-level folder or object that is not Tidelog's, staged objects (the sweep judges them), and the
    mark of an unfinished copy."""
    async for name, first in folders(store, ""):
        if name == STAGING_PREFIX:
            async for info in list_all(store, STAGING_PREFIX):
                await report(Looked(info.size))
        elif name == COPY_KEY:
            await _check_copy_mark(store, report)
        elif name not in _OWN_FOLDERS:
            await report(stranger(name, first.size))


async def _check_copy_mark(store: ObjectStore, report: Report) -> None:
    try:
        stored = await store.get(COPY_KEY)
        mark = decode_copy_mark(stored.data)
    except NotFound:
        return
    except UNREADABLE as fault:
        await report(unreadable(fault))
        return
    if not mark.whole:
        await report(error(COPY_KEY, f"marks an unfinished copy of {mark.source}: run `tidelog bucket copy` again"))
    await report(Looked(stored.info.size))
