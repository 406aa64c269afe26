"""Reads all partitions of a topic at the same time. Pages come in order of arrival; those of one partition in its
order.

Each partition has a task that fetches a page, hands it over, and fetches the next page when it was taken. The task of a
partition that has caught up waits in its fetch for the next commit. So the work per page does not grow with the number
of partitions, and memory holds at most one page per partition: `HELD_BYTES_MAX` together, unless single records are
larger than their share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.storage.loop_turns import LoopTurns

HELD_BYTES_MAX = 16 << 20
"""The pages of one follower together."""
PAGE_BYTES_MIN = 4 << 10
FETCHES_A_TURN = 16
"""Fetches of one follower that may begin in one turn of the event loop."""


@dataclass(frozen=True)
class Page:
    """Records of one partition. Reading continues at `next_offset`."""

    partition: int
    batches: Sequence[pa.RecordBatch]
    next_offset: int


class FollowedTopic:
    """Follows `topic` from `offsets` on.

    `limits` bound one page, and the time that a partition waits for its next record before it counts as idle. Without
    a wait, each partition is read to its end once. `grows`: partitions that are added later are followed, too, from
    their beginning. `beat_s` may be changed between two pages."""

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        topic: str,
        offsets: Mapping[int, int],
        limits: FetchLimits,
        *,
        beat_s: float,
        grows: bool = True,
    ) -> None:
        self.offsets = dict(offsets)
        self._broker = broker
        self._context = context
        self._topic = topic
        self._limits = limits
        self._grows = grows
        self.beat_s = beat_s
        self._turns = LoopTurns(FETCHES_A_TURN)
        self._arrived: asyncio.Queue[Page | Exception] = asyncio.Queue(maxsize=1)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._idle: set[int] = set()

    @property
    def caught_up(self) -> bool:
        """Whether every partition has waited ``limits.wait_ms`` without a record since the last page."""
        return len(self._idle) == len(self.offsets)

    async def pages(self) -> AsyncGenerator[Page | None]:
        """Pages as they arrive; None after `beat_s` without a page, and when all partitions have caught up. Raises the
        errors of a fetch."""
        loop = asyncio.get_running_loop()
        beat_at_s = loop.time() + self.beat_s
        try:
            while True:
                await self._follow_all()
                page = await self._next(beat_at_s)
                if page is None or self._is_due(page):
                    yield page if page and page.batches else None
                    beat_at_s = loop.time() + self.beat_s
        finally:
            await self._stop()

    def _is_due(self, page: Page) -> bool:
        """Whether `page` has records, or completes the empty pages that show that all partitions have caught up."""
        if page.batches:
            if self._limits.wait_ms:
                self._idle.clear()
            return True
        if self.caught_up:
            return False
        self._idle.add(page.partition)
        return self.caught_up

    async def _follow_all(self) -> None:
        """Start the missing tasks, also for partitions that were added."""
        count = self._broker.topic(self._context, self._topic).partition_count
        for partition in range(len(self.offsets), count if self._grows else 0):
            self.offsets[partition] = 0
        if len(self._tasks) == len(self.offsets):
            return
        for partition in self.offsets.keys() - self._tasks.keys():
            await self._turns.take()
            self._tasks[partition] = asyncio.ensure_future(self._follow(partition))

    async def _follow(self, partition: int) -> None:
        share_bytes = max(PAGE_BYTES_MIN, HELD_BYTES_MAX // len(self.offsets))
        limits = FetchLimits(self._limits.max_records, min(self._limits.max_bytes, share_bytes), self._limits.wait_ms)
        more = True
        try:
            while more:
                await self._turns.take()
                fetched = await self._broker.fetch(
                    self._context, self._topic, partition, self.offsets[partition], limits
                )
                self.offsets[partition] = fetched.next_offset
                await self._arrived.put(Page(partition, fetched.batches, fetched.next_offset))
                more = bool(fetched.batches) or limits.wait_ms > 0
        except Exception as error:
            await self._arrived.put(error)

    async def _next(self, until_s: float) -> Page | None:
        """The next page of any partition, perhaps an empty one; None at `until_s`."""
        try:
            async with asyncio.timeout_at(until_s):
                arrived = await self._arrived.get()
        except TimeoutError:
            return None
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def _stop(self) -> None:
        for task in self._tasks.values():
            await self._turns.take()
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
