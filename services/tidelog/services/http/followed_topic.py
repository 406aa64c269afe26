"""All partitions of a topic read at the same time: pages in the order they come, each partition's in its own order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelog.services.broker.api import Broker, Fetched, FetchLimits


@dataclass(frozen=True)
class Page:
    """Records of one partition."""

    partition: int
    batches: Sequence[pa.RecordBatch]


class FollowedTopic:
    """Follows `topic` from `offsets` on; a partition that is added later joins from its beginning.

    One fetch a partition is under way, so what is held is at most `limits.max_bytes` of each."""

    def __init__(self, broker: Broker, topic: str, offsets: Mapping[int, int], limits: FetchLimits) -> None:
        self.offsets = dict(offsets)
        self._broker = broker
        self._topic = topic
        self._limits = limits
        self._fetches: dict[asyncio.Task[Fetched], int] = {}
        self._idle: set[int] = set()

    async def pages(self) -> AsyncGenerator[Page | None]:
        """Pages as they come, and None whenever every partition has waited ``limits.wait_ms`` in vain."""
        try:
            while True:
                self._start_fetches()
                done, _ = await asyncio.wait(self._fetches, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    page = self._take(task)
                    if page is not None:
                        yield page
                if len(self._idle) == len(self.offsets):
                    yield None
                    self._idle.clear()
        finally:
            await self._stop()

    def _start_fetches(self) -> None:
        """Let every partition have its fetch; without a wait, one that has caught up rests until another brings
        records, so that nothing spins."""
        for partition in range(len(self.offsets), self._broker.topic(self._topic).partition_count):
            self.offsets[partition] = 0
        busy = set(self._fetches.values())
        for partition, offset in self.offsets.items():
            if partition in busy or (not self._limits.wait_ms and partition in self._idle):
                continue
            fetch = self._broker.fetch(self._topic, partition, offset, self._limits)
            self._fetches[asyncio.ensure_future(fetch)] = partition

    def _take(self, task: asyncio.Task[Fetched]) -> Page | None:
        partition = self._fetches.pop(task)
        fetched = task.result()
        self.offsets[partition] = fetched.next_offset
        if not fetched.batches:
            self._idle.add(partition)
            return None
        self._idle.clear()
        return Page(partition, fetched.batches)

    async def _stop(self) -> None:
        for task in self._fetches:
            task.cancel()
        await asyncio.gather(*self._fetches, return_exceptions=True)
