"""Walks the listing of a bucket's segments beside the topics that they belong to, some pages at a time.

    walk = TopicWalk(looks, begin, check, check_other, at_once=16)
    async for page, answer in walk.over(list_segments(store)):
        ...

`begin` reads a topic in a shard once, when its first page comes; `check` answers for each page of it. So each list is
read once, however many pages its topic has. Topics in progress have `LISTED_AT_ONCE` segments together, or are a single
larger one: the listing waits until there is room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.storage.bucket.listing import SegmentPage
from tidelog.storage.bucket.shard_look import ShardLooks
from tidelog.storage.in_flight import WeightedSemaphore, in_order
from tidelog.storage.object_store import ObjectInfo
from tidelog.storage.segments.topic_segment import SegmentPlace

PAGES_AT_ONCE = 16
LISTED_AT_ONCE = 100_000
"""Segments in the lists of topics in progress, unless a single topic has more."""

Topic = TypeVar("Topic")
Answer = TypeVar("Answer")


@dataclass
class _InProgress(Generic[Topic]):
    """A topic in a shard, and its pages under way. It holds its share of the memory until `whole` and no page is
    left."""

    topic: asyncio.Task[Topic]
    held: AsyncExitStack
    pages: int = 0
    whole: bool = False


class TopicWalk(Generic[Topic, Answer]):
    """One walk. `other` answers for each object that is no segment."""

    def __init__(
        self,
        looks: ShardLooks,
        begin: Callable[[SegmentPlace], Coroutine[object, object, Topic]],
        check: Callable[[SegmentPage, Topic], Awaitable[Answer]],
        other: Callable[[ObjectInfo], Awaitable[Answer]],
        *,
        at_once: int = PAGES_AT_ONCE,
    ) -> None:
        self._looks = looks
        self._begin = begin
        self._check = check
        self._other = other
        self._at_once = at_once
        self._topics: dict[SegmentPlace, _InProgress[Topic]] = {}
        self._room = WeightedSemaphore(LISTED_AT_ONCE)

    async def over(
        self, listed: AsyncIterator[SegmentPage | ObjectInfo]
    ) -> AsyncGenerator[tuple[SegmentPage | ObjectInfo, Answer], None]:
        """The answer for each item of `listed`, in order."""
        try:
            async with aclosing(in_order(self._in_bounds(listed), self._answered, at_once=self._at_once)) as answered:
                async for item, answer in answered:
                    yield item, answer
        finally:
            reading = [progress.topic for progress in self._topics.values()]
            for topic in reading:
                topic.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _in_bounds(
        self, listed: AsyncIterator[SegmentPage | ObjectInfo]
    ) -> AsyncIterator[SegmentPage | ObjectInfo]:
        """Wait with the listing while the topics in progress have too many segments."""
        async for item in listed:
            if isinstance(item, SegmentPage):
                progress = self._topics.get(item.place) or await self._begun(item.place)
                progress.pages, progress.whole = progress.pages + 1, item.whole
            yield item

    async def _begun(self, place: SegmentPlace) -> _InProgress[Topic]:
        look, held = self._looks(place.shard), AsyncExitStack()
        if look.manifest is None and look.fault is None:
            await look.refresh()
        state = look.manifest.topics.get(place.topic_id) if look.manifest else None
        await held.enter_async_context(self._room.take(state.totals.segments if state else 0))
        progress = self._topics[place] = _InProgress(asyncio.create_task(self._begin(place)), held)
        return progress

    async def _answered(self, item: SegmentPage | ObjectInfo) -> Answer:
        if not isinstance(item, SegmentPage):
            return await self._other(item)
        progress = self._topics[item.place]
        answer = await self._check(item, await progress.topic)
        progress.pages -= 1
        if progress.whole and not progress.pages:
            del self._topics[item.place]
            await progress.held.aclose()
        return answer
