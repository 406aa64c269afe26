"""Verifies a whole bucket: `tidelog bucket verify`.

    verification = BucketVerification(store, deep=True)
    async for finding in verification.findings():
        print(finding.severity.value, finding.key, finding.text)
    print(verification.summary)

Shallow: listings, the header of every WAL entry, every newest manifest, the footer of every segment. Deep: every byte.

Brokers may run at the same time, because of the order. Write-ahead logs are read first and manifests second: records
that are archived in between are in the manifests read later, so no gap appears that is none (inv. 5). The journals are
read last; that of topics knows a topic before the topic's first object exists. A suspicious object is looked at again
before it is reported.

At most `at_once` requests run at a time. Memory is bounded by the listings and manifests of a few partitions, and by
the content of the write-ahead logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from tidelog.storage.bucket.copy import decode_copy_mark
from tidelog.storage.bucket.finding import Finding, Looked, Report, Seen, Summary, corrupt, error, stranger
from tidelog.storage.bucket.known_topics import TopicKnowledge
from tidelog.storage.bucket.listing import Listed, PartitionListing, folders, list_partitions
from tidelog.storage.bucket.partition_check import PartitionCheck, WalSide
from tidelog.storage.bucket.topic_check import TopicCheck
from tidelog.storage.bucket.verify_state import FINDINGS_MAX, Suspicion, WalkState
from tidelog.storage.bucket.wal_check import DEEP_AT_ONCE_MAX, check_wals
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import WeightedSemaphore, in_order
from tidelog.storage.layout import COPY_KEY, GROUPS_PREFIX, META_PREFIX, STAGING_PREFIX, TOPICS_PREFIX, WAL_PREFIX
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.upkeep.task import Place

AT_ONCE = 32
PARTITIONS_AT_ONCE = 16
LISTED_AT_ONCE = 50_000
"""Listed segments of the partitions in progress, unless a single partition has more."""
PENDING_FINDINGS_MAX = 1_000
_DONE = 2**63 - 1
_OWN_FOLDERS = (GROUPS_PREFIX, META_PREFIX, TOPICS_PREFIX, WAL_PREFIX)

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
        topics: TopicKnowledge | None = None,
        journal: JournalCheck | None = None,
        groups: JournalCheck | None = None,
        state: WalkState | None = None,
        at_once: int = AT_ONCE,
        on_looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._deep = deep
        self._topics = TopicCheck(store, topics)
        self._journals = [check for check in (groups, journal) if check is not None]
        self._at_once = at_once
        self._on_looked = on_looked
        self._pending: asyncio.Queue[Finding] = asyncio.Queue(PENDING_FINDINGS_MAX)
        self._listed = WeightedSemaphore(LISTED_AT_ONCE)
        self._requests = WeightedSemaphore(min(at_once, DEEP_AT_ONCE_MAX) if deep else at_once)
        self.state = state or WalkState(store.url, deep)
        self._known = set(self.state.findings)
        self._wal = self.state.wal

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
            self._wal = await check_wals(self._store, self._report, deep=self._deep, at_once=self._at_once)
            self.state.finish_wal(self._wal)
        await self._walk_topics()
        await self._topics.close(self.state, self._wal.stretches, self._report)
        for check in self._journals:
            async for seen in check():
                await self._report(seen)

    async def _report(self, seen: Seen) -> None:
        if isinstance(seen, Finding):
            if seen in self._known:
                return
            if len(self.state.findings) < FINDINGS_MAX:
                self.state.findings.append(seen)
            await self._pending.put(seen)
        self.state.summary = self.state.summary.after(seen)
        self._on_looked()

    async def _walk_topics(self) -> None:
        listed = list_partitions(self._store, from_topic=self.state.topic)
        async for item, _ in in_order(self._in_bounds(listed), self._look, at_once=PARTITIONS_AT_ONCE):
            if isinstance(item, PartitionListing):
                self._finished(item)

    async def _in_bounds(self, listed: AsyncIterator[Listed]) -> AsyncIterator[Listed]:
        """Wait with the listing while too many listed segments are not checked yet."""
        async for item in listed:
            if isinstance(item, PartitionListing):
                async with self._listed.take(len(item.segments)):
                    pass
            yield item

    async def _look(self, item: Listed) -> None:
        if isinstance(item, PartitionListing):
            async with self._listed.take(len(item.segments)):
                await self._look_at_partition(item)
        else:
            await self._report(stranger(item.key, item.size))

    async def _look_at_partition(self, listing: PartitionListing) -> None:
        group, place = _group(listing), listing.place
        if self._was_looked_at(listing, group):
            return
        self.state.see(listing.name, place, in_wal=place in self._wal.stretches)
        check = PartitionCheck(
            self._store,
            Place(listing.name.topic, place),
            self._topics.unless_deleted(place.topic_id, self._report),
            deep=self._deep,
            requests=self._requests,
            reached=lambda offset: self.state.reached.__setitem__(group, offset),
        )
        wal = WalSide(self._wal.stretches.get(place), self._wal.below.get(place))
        suspicious = await check.run(listing, wal, self.state.reached.get(group, 0))
        self.state.suspects += [Suspicion(listing.name.topic, place, finding) for finding in suspicious]
        self.state.reached[group] = _DONE

    def _was_looked_at(self, listing: PartitionListing, group: str) -> bool:
        done = listing.name == self.state.topic and listing.partition in self.state.done
        return done or self.state.reached.get(group) == _DONE

    def _finished(self, listing: PartitionListing) -> None:
        if listing.name != self.state.topic:
            self.state.topic, self.state.done = listing.name, set()
        self.state.done.add(listing.partition)
        self.state.reached.pop(_group(listing), None)


def _group(listing: PartitionListing) -> str:
    return f"{listing.name.prefix}{listing.partition}"


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
    except Corrupt as fault:
        await report(corrupt(fault))
        return
    if not mark.whole:
        await report(error(COPY_KEY, f"marks an unfinished copy of {mark.source}: run `tidelog bucket copy` again"))
    await report(Looked(stored.info.size))
