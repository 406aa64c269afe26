"""A writer and a watcher that continue through faults and record everything, and a check that no change was missed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.storage.errors import Unavailable

PREFIX = "load/"
PROGRESS_S_MAX = 30.0


@dataclass
class Load:
    """The acknowledged and the seen changes, with their times on the monotonic clock."""

    store: KeyValueStore
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Revision by key."""
    seen: list[tuple[str, int]] = field(default_factory=list)
    """Key and revision, in order of arrival."""
    acknowledged_at_s: list[float] = field(default_factory=list)
    seen_at_s: list[float] = field(default_factory=list)
    unknown: int = 0
    _progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def write(self) -> None:
        """Write one key after another, each once."""
        number = 0
        while True:
            number += 1
            key = f"{PREFIX}{number:06d}"
            try:
                self.acknowledged[key] = await self.store.put(key, b"")
                self.acknowledged_at_s.append(time.monotonic())
            except Unavailable:
                self.unknown += 1
            await self._tell()
            await asyncio.sleep(0.01)

    async def watch(self, from_revision: int) -> None:
        """Record every change."""
        async with aclosing(self.store.watch(PREFIX, from_revision)) as watch:
            async for batch in watch:
                self.seen.extend((event.item.key, event.item.mod_revision) for event in batch.events)
                self.seen_at_s.append(time.monotonic())
                await self._tell()

    async def more(self, count: int) -> None:
        """Wait until `count` more keys are acknowledged, and all acknowledged keys are seen."""
        enough = len(self.acknowledged) + count
        await self._until(lambda: len(self.acknowledged) >= enough)
        await self.all_seen()

    async def all_seen(self) -> None:
        """Wait until everything acknowledged so far is seen."""
        last = max(self.acknowledged.values())
        await self._until(lambda: bool(self.seen) and self.seen[-1][1] >= last)

    async def prove_that_nothing_was_missed(self) -> None:
        """Check that the seen changes are exactly those in the store, once and in order, and that each acknowledged one
        is there at its revision."""
        await self.all_seen()
        # Taken before the store is read: a put with an unknown outcome may still take effect and be seen.
        until = self.seen[-1][1]
        page = await self.store.range(PREFIX, limit=100_000)
        there = {item.key: item.mod_revision for item in page.items}
        assert all(item.version == 1 for item in page.items), "a put was done twice"
        assert there.items() >= self.acknowledged.items()
        assert [(key, revision) for key, revision in self.seen if revision <= until] == sorted(
            ((key, revision) for key, revision in there.items() if revision <= until), key=lambda each: each[1]
        )

    def gap_s(self) -> float:
        """The longest time without an acknowledged put, or without an event."""
        return max(_longest_s(self.acknowledged_at_s), _longest_s(self.seen_at_s))

    async def _tell(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PROGRESS_S_MAX), self._progress:
            await self._progress.wait_for(reached)


@asynccontextmanager
async def running(store: KeyValueStore) -> AsyncIterator[Load]:
    """A running load. At the end it stops, and its records are checked."""
    load = Load(store)
    start = await store.put(PREFIX + "000000", b"")
    load.acknowledged[PREFIX + "000000"] = start
    watcher = asyncio.create_task(load.watch(start))
    writer = asyncio.create_task(load.write())
    try:
        await load.more(5)
        yield load
        writer.cancel()
        await asyncio.wait([writer])
        await load.prove_that_nothing_was_missed()
    finally:
        for task in (writer, watcher):
            task.cancel()
        await asyncio.gather(writer, watcher, return_exceptions=True)
    assert watcher.cancelled(), "the watch ended by itself"


def _longest_s(times_s: list[float]) -> float:
    return max((later - earlier for earlier, later in itertools.pairwise(times_s)), default=0.0)
