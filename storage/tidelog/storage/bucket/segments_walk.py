"""Walks the listing of all segments beside the manifests of all shards, some pages at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from tidelog.storage.bucket.finding import Finding
from tidelog.storage.bucket.listing import SegmentPage, TopicFolder, TopicName, list_segments
from tidelog.storage.bucket.segments_check import SegmentsCheck, TopicLook
from tidelog.storage.bucket.shard_look import ShardLook, ShardLooks
from tidelog.storage.bucket.wal_check import WalContent
from tidelog.storage.in_flight import WeightedSemaphore, in_order
from tidelog.storage.object_store import ObjectInfo, ObjectStore

PAGES_AT_ONCE = 16
LISTED_AT_ONCE = 100_000
"""Segments in the lists of topics in progress, unless a single topic has more."""

Checks = Callable[[TopicFolder, ShardLook], SegmentsCheck]
Begun = Callable[[TopicFolder, TopicLook | None], None]


@dataclass
class _InProgress:
    """A topic in a shard, and its pages under way. `look` is shared by them. It holds its share of the memory until
    `whole` and no page is left."""

    check: SegmentsCheck
    held: AsyncExitStack
    look: asyncio.Task[TopicLook | None]
    pages: int = 0
    whole: bool = False


@dataclass
class SegmentsWalk:
    """One walk. `looks`: the manifests; `wal`: the content of the logs by topic id; `checks` makes the check of a topic
    in a shard; `begun` is called when the topic's list was read."""

    store: ObjectStore
    looks: ShardLooks
    wal: Mapping[str, WalContent]
    checks: Checks
    begun: Begun
    _topics: dict[TopicFolder, _InProgress] = field(default_factory=dict)
    _room: WeightedSemaphore = field(default_factory=lambda: WeightedSemaphore(LISTED_AT_ONCE))

    async def pages(
        self, after: str, stranger: Callable[[ObjectInfo], Awaitable[None]]
    ) -> AsyncGenerator[tuple[SegmentPage, list[Finding]], None]:
        """Each page after the key `after` once it is checked, with the findings to judge later; `stranger` is called
        with each object that is no segment."""

        async def look(item: SegmentPage | ObjectInfo) -> list[Finding]:
            if isinstance(item, SegmentPage):
                return await self._check(item)
            await stranger(item)
            return []

        listed = list_segments(self.store, self._expected(), start_after=after)
        try:
            async for item, findings in in_order(self._in_bounds(listed), look, at_once=PAGES_AT_ONCE):
                if isinstance(item, SegmentPage):
                    yield item, findings
        finally:
            for topic in self._topics.values():
                topic.look.cancel()
            await asyncio.gather(*(topic.look for topic in self._topics.values()), return_exceptions=True)

    def _wal_of(self, page: SegmentPage) -> WalContent:
        return self.wal.get(page.place.name.topic_id) or WalContent()

    def _expected(self) -> list[TopicFolder]:
        return [
            TopicFolder(TopicName(topic.name, topic_id), shard)
            for shard, look in self.looks.known.items()
            if look.manifest
            for topic_id, topic in look.manifest.topics.items()
        ]

    async def _in_bounds(
        self, listed: AsyncIterator[SegmentPage | ObjectInfo]
    ) -> AsyncIterator[SegmentPage | ObjectInfo]:
        """Wait with the listing while the topics in progress have too many segments."""
        async for item in listed:
            if isinstance(item, SegmentPage):
                topic = self._topics.get(item.place) or await self._begin(item)
                topic.pages, topic.whole = topic.pages + 1, item.whole
            yield item

    async def _begin(self, page: SegmentPage) -> _InProgress:
        look = self.looks(page.place.shard)
        state = look.manifest.topics.get(page.place.name.topic_id) if look.manifest else None
        held = AsyncExitStack()
        await held.enter_async_context(self._room.take(state.totals.segments if state else 0))
        check = self.checks(page.place, look)
        topic = _InProgress(check, held, asyncio.create_task(self._read(page, check)))
        self._topics[page.place] = topic
        return topic

    async def _read(self, page: SegmentPage, check: SegmentsCheck) -> TopicLook | None:
        found = await check.begin(self._wal_of(page))
        self.begun(page.place, found)
        return found

    async def _check(self, page: SegmentPage) -> list[Finding]:
        topic = self._topics[page.place]
        wal = self._wal_of(page)
        findings = await topic.check.check(page, await topic.look, wal)
        topic.pages -= 1
        if topic.whole and not topic.pages:
            del self._topics[page.place]
            await topic.held.aclose()
        return findings
