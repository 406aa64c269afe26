"""Bounded concurrency: at most so many tasks at once, with results in order.

    async for segment, footer in in_order(segments, read_footer, at_once=32):
        ...

- `in_order` walks a whole bucket quickly in bounded memory.
- `each_of` is for work that must not be cut off: after an error elsewhere it still ends.
- `in_thread` is work in a thread that ends before its caller does.
- `WeightedSemaphore` bounds the amount that many tasks hold together: bytes, or listed objects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")


async def in_order(
    items: AsyncIterable[A] | Iterable[A], work: Callable[[A], Awaitable[B]], *, at_once: int
) -> AsyncGenerator[tuple[A, B], None]:
    """Each item with the result of `work`, in the order of `items`. `at_once` of them are under way or wait for the
    caller. The first error ends the iteration and cancels the work under way; so does a caller that stops early."""
    assert at_once >= 1, at_once
    under_way: deque[tuple[A, asyncio.Task[B]]] = deque()
    try:
        async for item in _each(items):
            under_way.append((item, asyncio.ensure_future(_awaited(work, item))))
            if len(under_way) == at_once:
                yield await _first(under_way)
        while under_way:
            yield await _first(under_way)
    finally:
        for _, task in under_way:
            task.cancel()
        await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)


async def _first(under_way: deque[tuple[A, asyncio.Task[B]]]) -> tuple[A, B]:
    item, task = under_way[0]
    done = await task
    under_way.popleft()
    return item, done


async def _awaited(work: Callable[[A], Awaitable[B]], item: A) -> B:
    return await work(item)


async def _each(items: AsyncIterable[A] | Iterable[A]) -> AsyncIterator[A]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def each_of(items: Iterable[A], work: Callable[[A], Awaitable[object]], *, at_once: int) -> None:
    """Do `work` on each of `items`, `at_once` at a time. After an error no other is begun, those under way end, and
    then the error is raised. Only a cancelled caller cancels them."""
    assert at_once >= 1, at_once
    waiting = deque(items)
    if not waiting:
        return

    async def turn() -> None:
        while waiting:
            await work(waiting.popleft())

    turns = [asyncio.create_task(turn()) for _ in range(min(at_once, len(waiting)))]
    try:
        ended, going = await asyncio.wait(turns, return_when=asyncio.FIRST_EXCEPTION)
        waiting.clear()
        if going:
            await asyncio.wait(going)
    finally:
        for task in turns:
            task.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
    for task in ended:
        task.result()


class WeightedSemaphore:
    """Tasks hold amounts of `total` together; `taken` is held now. A task that wants more than `total` gets all of it,
    alone."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._changed = asyncio.Condition()
        self.taken = 0

    @asynccontextmanager
    async def take(self, amount: int) -> AsyncIterator[None]:
        """Wait until `amount` is free, and hold it."""
        share = min(max(amount, 0), self._total)
        async with self._changed:
            await self._changed.wait_for(lambda: self.taken + share <= self._total)
            self.taken += share
        try:
            yield
        finally:
            async with self._changed:
                self.taken -= share
                self._changed.notify_all()


async def in_thread(executor: Executor | None, work: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
    """The result of `work` in a thread of `executor` (None: the event loop's default). It waits for the end of the
    thread even if the caller is cancelled: the thread must not keep using a file that the caller closes, and that may
    be another file by then."""
    running = asyncio.get_running_loop().run_in_executor(executor, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    finally:
        if not running.done():
            await asyncio.wait((running,))
