"""`AsyncConsumer`: `Consumer` for asyncio.

async with AsyncConsumer("http://127.0.0.1:8080", "web", group="billing") as consumer:
    async for record in consumer:
        print(record.partition, record.offset, record.value)

The threads of the `Consumer` behind it fetch and send heartbeats, so a program that blocks its event loop for a while
stays in its group. A poll that is cancelled loses no records: the next poll returns its batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from types import TracebackType
from typing import Any, TypeAlias

from tidelog.client.async_calls import Started, in_thread, parameters_of
from tidelog.client.consumed import Batch, Record, TopicPartition
from tidelog.client.consumer import Consumer
from tidelog.client.rebalances import OnPartitions

OnPartitionsAsync: TypeAlias = Callable[["AsyncConsumer", Sequence[TopicPartition]], object]
"""A function or a coroutine function. It runs on the event loop, while a poll waits for it."""


class AsyncConsumer(Started[Consumer]):
    """Reads topics. Enter it with ``async with``, or call `start` first. Parameters and calls are those of
    `Consumer`. One task at a time may poll or iterate."""

    @parameters_of(Consumer.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(Consumer, *args, **kwargs)
        self._polls = ThreadPoolExecutor(1, thread_name_prefix="tidelog-poll")
        self._pending: asyncio.Future[Any] | None = None

    async def subscribe(
        self,
        topics: str | Collection[str] = (),
        *,
        pattern: str | None = None,
        on_assign: OnPartitionsAsync | None = None,
        on_revoke: OnPartitionsAsync | None = None,
        on_lost: OnPartitionsAsync | None = None,
    ) -> None:
        """As `Consumer.subscribe`. The callbacks may be coroutine functions."""
        loop = asyncio.get_running_loop()
        self.held.subscribe(
            topics,
            pattern=pattern,
            on_assign=self._on_loop(on_assign, loop),
            on_revoke=self._on_loop(on_revoke, loop),
            on_lost=self._on_loop(on_lost, loop),
        )

    assign = in_thread(Consumer.assign)
    position = in_thread(Consumer.position)
    seek = in_thread(Consumer.seek)
    end_offsets = in_thread(Consumer.end_offsets)
    committed = in_thread(Consumer.committed)
    commit = in_thread(Consumer.commit)
    lag = in_thread(Consumer.lag)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        return self.held.assignment

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        return self.held.paused

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The end of each assigned partition in its last answer; -1 before the first fetch."""
        return self.held.high_watermarks

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give out no records of these partitions until `resume`."""
        self.held.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Give out records of these partitions again."""
        self.held.resume(partitions)

    async def poll(self, timeout_s: float = 1.0) -> Batch | None:
        """The next batch of any partition, or None if none arrived within `timeout_s`. Errors as of `Consumer.poll`."""
        found: Batch | None = await self._in_poll_thread(lambda: self.held.poll(timeout_s))
        return found

    async def batches(self, *, follow: bool = True) -> AsyncIterator[Batch]:
        """Batch after batch. With `follow` off, up to the present ends of the partitions."""
        batches = self.held.batches(follow=follow)
        while (batch := await self._in_poll_thread(lambda: next(batches, None))) is not None:
            yield batch

    async def records(self, *, follow: bool = True) -> AsyncIterator[Record]:
        """The records of `batches` one by one."""
        async for batch in self.batches(follow=follow):
            for record in self.held.given_out(batch):
                yield record

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    async def close(self, *, failed: bool = False) -> None:
        """As `Consumer.close`, also while a poll is under way."""
        if self._held is not None:
            self._held.wake_up(closing=True)
            if self._pending is not None:
                await asyncio.wait([self._pending])  # its outcome belongs to the poll, not to `close`
            await asyncio.to_thread(self._held.close, failed=failed)
        self._polls.shutdown(wait=False)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close(failed=error is not None)

    async def _in_poll_thread(self, call: Callable[[], Any]) -> Any:
        """The result of `call`; or, if an earlier wait was cancelled, the result that it would have had."""
        if self._pending is None:
            self._pending = asyncio.get_running_loop().run_in_executor(self._polls, call)
        try:
            return await asyncio.shield(self._pending)
        finally:
            if self._pending.done():
                self._pending = None

    def _on_loop(self, callback: OnPartitionsAsync | None, loop: asyncio.AbstractEventLoop) -> OnPartitions | None:
        if callback is None:
            return None

        async def run(partitions: Sequence[TopicPartition]) -> None:
            result = callback(self, partitions)
            if isawaitable(result):
                await result

        return lambda _, partitions: asyncio.run_coroutine_threadsafe(run(partitions), loop).result()
