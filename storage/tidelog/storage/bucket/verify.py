"""Walks a bucket and proves it: what `tidelog bucket verify` prints.

    verification = BucketVerification(store, deep=True)
    async for finding in verification.findings():
        print(finding.severity.value, finding.key, finding.text)
    print(verification.summary)

Write-ahead logs come first and manifests second, so that a broker may run meanwhile: what it archives in between is in
the manifests that are read later, and no gap appears that is none (inv. 5). The journal comes last, since a topic is in
it before any of its objects is there. What still looks wrong is looked at once more before it is told.

Shallow: listings, the header of every WAL entry, every newest manifest, the footer of every segment. Deep: every byte.
`at_once` requests are under way at a time; memory is that of a few partitions' listings and manifests, and of what lies
in the write-ahead logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from tidelog.storage.bucket.finding import Finding, Progress, Seen, Severity, Summary
from tidelog.storage.bucket.known_topics import TopicKnowledge
from tidelog.storage.bucket.partition_check import PartitionCheck, WalSide
from tidelog.storage.bucket.topic_check import TopicCheck
from tidelog.storage.bucket.topic_listing import Listed, PartitionListing, list_partitions
from tidelog.storage.bucket.verify_state import FINDINGS_MAX, Suspicion, WalkState
from tidelog.storage.bucket.wal_check import DEEP_AT_ONCE_MAX
from tidelog.storage.bucket.wal_walk import WalWalk, strangers
from tidelog.storage.in_flight import Room, in_order
from tidelog.storage.object_store import ObjectStore, list_all

AT_ONCE = 32
PARTITIONS_AT_ONCE = 16
LISTED_AT_ONCE = 50_000
"""Segments of the partitions that are looked at together, unless one alone has more."""
TOLD_AHEAD_MAX = 1_000
_DONE = 2**63 - 1

JournalCheck = Callable[[], AsyncIterator[Seen]]


class BucketVerification:
    """One walk, from `state` on if there is one. `topics` and `journal` come from whoever can read the journal; without
    them it is left out. `summary` grows with the walk; `on_looked` is called whenever it did."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        deep: bool = False,
        topics: TopicKnowledge | None = None,
        journal: JournalCheck | None = None,
        state: WalkState | None = None,
        at_once: int = AT_ONCE,
        on_looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._deep = deep
        self._topics = TopicCheck(store, topics)
        self._journal = journal
        self._at_once = at_once
        self._on_looked = on_looked
        self._told: asyncio.Queue[Finding] = asyncio.Queue(TOLD_AHEAD_MAX)
        self._room = Room(LISTED_AT_ONCE)
        self._requests = Room(min(at_once, DEEP_AT_ONCE_MAX) if deep else at_once)
        self.state = state or WalkState(store.url, deep)
        self._known = set(self.state.findings)
        self._wal = dict(self.state.stretches)
        self._below = dict(self.state.below)

    @property
    def summary(self) -> Summary:
        return self.state.summary

    async def survey(self) -> Progress:
        """How much there is to look at, by a listing: what progress is measured against."""
        objects = size_bytes = 0
        async for info in list_all(self._store, ""):
            objects += 1
            size_bytes += info.size
        return Progress(objects, size_bytes)

    async def findings(self) -> AsyncIterator[Finding]:
        """Everything that is not as it should be, as it is found; what an interrupted walk had found comes first.
        Raises `Unavailable`, `Denied`."""
        for finding in self.state.findings:
            yield finding
        walk = asyncio.create_task(self._walk())
        try:
            while not (walk.done() and self._told.empty()):
                told = asyncio.ensure_future(self._told.get())
                await asyncio.wait({told, walk}, return_when=asyncio.FIRST_COMPLETED)
                if told.done():
                    yield told.result()
                else:
                    told.cancel()
            await walk
        finally:
            walk.cancel()
            await asyncio.gather(walk, return_exceptions=True)

    async def _walk(self) -> None:
        if not self.state.wal_done:
            await self._walk_wals()
        await self._walk_topics()
        async for seen in self._topics.closing(self.state, self._wal):
            await self._tell(seen)
        if self._journal is not None:
            async for seen in self._journal():
                await self._tell(seen)

    async def _tell(self, seen: Seen) -> None:
        if isinstance(seen, Finding):
            if seen in self._known:
                return
            if len(self.state.findings) < FINDINGS_MAX:
                self.state.findings.append(seen)
            await self._told.put(seen)
        self.state.summary = self.state.summary.after(seen)
        self._on_looked()

    async def _walk_wals(self) -> None:
        async for seen in strangers(self._store):
            await self._tell(seen)
        walk = WalWalk(self._store, deep=self._deep, at_once=self._at_once)
        async for seen in walk.findings():
            await self._tell(seen)
        self._wal, self._below = walk.stretches, walk.below
        self.state.stretches = list(walk.stretches.items())
        self.state.below = list(walk.below.items())
        self.state.wal_done = True

    # ---- topics

    async def _walk_topics(self) -> None:
        listed = list_partitions(self._store, from_topic=self.state.topic)
        async for item, _ in in_order(self._in_bounds(listed), self._look, at_once=PARTITIONS_AT_ONCE):
            if isinstance(item, PartitionListing):
                self._finished(item)

    async def _in_bounds(self, listed: AsyncIterator[Listed]) -> AsyncIterator[Listed]:
        """Goes on listing only while there is room for what was listed and is not looked at yet."""
        async for item in listed:
            if isinstance(item, PartitionListing):
                async with self._room.take(len(item.segments)):
                    pass
            yield item

    async def _look(self, item: Listed) -> None:
        if isinstance(item, PartitionListing):
            async with self._room.take(len(item.segments)):
                await self._look_at_partition(item)
        else:
            await self._tell(Finding(Severity.WARNING, item.key, "is none of Tidelog's objects", item.size))

    async def _look_at_partition(self, listing: PartitionListing) -> None:
        group = _group(listing)
        if self._was_looked_at(listing, group):
            return
        self.state.see(listing.name, listing.place, in_wal=listing.place in self._wal)
        check = PartitionCheck(
            self._store,
            listing.name.topic,
            listing.place,
            self._topics.unless_deleted(listing.place.topic_id, self._tell),
            deep=self._deep,
            requests=self._requests,
            reached=lambda offset: self.state.reached.__setitem__(group, offset),
        )
        wal = WalSide(self._wal.get(listing.place), self._below.get(listing.place))
        suspicious = await check.run(listing, wal, self.state.reached.get(group, 0))
        self.state.suspects += [Suspicion(listing.name.topic, listing.place, finding) for finding in suspicious]
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
