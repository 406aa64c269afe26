"""The asyncio side of the simulation's event loop: callbacks, timers in virtual milliseconds, tasks and futures.

Work for a thread is done at once, and its result arrives in a later turn. `Scheduler` decides which callbacks run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.AbstractEventLoop):
    """`now_ms` is the virtual time. A subclass overrides `_enqueue` and `_adopt`, and runs the callbacks."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._timer_numbers = count()

    def _enqueue(self, handle: asyncio.Handle) -> None:
        """The callback `handle` is ready."""
        raise NotImplementedError

    def _adopt(self, task: asyncio.Task[Any]) -> None:
        """`task` was created."""
        raise NotImplementedError

    def _fire(self) -> int | None:
        """Make the timers ready that are due. Returns when the next one is."""
        while self._timers and self._timers[0][0] <= self.now_ms:
            handle = heappop(self._timers)[2]
            if not handle.cancelled():
                self._enqueue(handle)
        return self._timers[0][0] if self._timers else None

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context or copy_context())
        self._enqueue(handle)
        return handle

    def at_ms(
        self, wake_ms: int, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Like `call_at`, in true milliseconds."""
        handle = asyncio.TimerHandle(wake_ms / 1_000, callback, args, self, context or copy_context())
        heappush(self._timers, (wake_ms, next(self._timer_numbers), handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.at_ms(ceil(when * 1_000), callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def time(self) -> float:
        return self.now_ms / 1_000

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._adopt(task)
        return task

    def run_in_executor(  # type: ignore[override]  # what is under way cannot be cancelled, so a future is enough
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = self.create_future()
        try:
            self.call_soon(_deliver, future, func(*args), None)
        except Exception as error:
            self.call_soon(_deliver, future, None, error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when it is due."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Pending tasks of dead processes, and results that nobody asked for, are no faults."""


def _deliver(future: asyncio.Future[Any], value: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
