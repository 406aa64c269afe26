"""An event loop with virtual time: when nothing can run, it jumps to the next timer instead of waiting for it.

So minutes of leases and delays take milliseconds, and a run is the same each time. Nothing in it may do real I/O. Work
in threads is allowed: the time stands still until it is done.
"""

from __future__ import annotations

import asyncio
import inspect
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import wraps
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")
_Arguments = TypeVarTuple("_Arguments")


class _JumpingSelector(selectors.SelectSelector):
    """Waits only for `in_threads` pieces of work in threads: it ends every other wait at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.in_threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.in_threads:
            return super().select(0 if timeout == 0 else None)
        if timeout is None:
            raise RuntimeError("all tasks wait for something that never comes")
        self.now_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's head."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Arguments]], _Result], *args: *_Arguments
    ) -> asyncio.Future[_Result]:
        running = super().run_in_executor(executor, func, *args)
        self._jumping.in_threads += 1
        running.add_done_callback(self._came_back)
        return running

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        self._jumping.in_threads += 1
        await super().shutdown_default_executor()
        self._jumping.in_threads -= 1

    def _came_back(self, _: object) -> None:
        self._jumping.in_threads -= 1


class LoopClock:
    """A `Clock` with the time of the loop that first asks it, `offset_s` ahead. Threads may ask it, too."""

    def __init__(self, offset_s: float = 0.0) -> None:
        self._offset_s = offset_s
        self._loop: asyncio.AbstractEventLoop | None = None

    def monotonic(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time() + self._offset_s

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1_000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))


def run_virtually(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Run to the end in virtual time, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def virtually(test: Callable[_Given, Coroutine[None, None, None]]) -> Callable[_Given, None]:
    """A test in virtual time."""

    @wraps(test)
    def run(*args: _Given.args, **kwargs: _Given.kwargs) -> None:
        run_virtually(test(*args, **kwargs))

    del run.__dict__["__wrapped__"]  # otherwise pytest would take it for a coroutine function
    run.__dict__["__signature__"] = inspect.signature(test)  # so that pytest finds its fixtures
    return run
