"""An event loop for several processes under one seeded choice and one virtual time. It runs asyncio code, no threads.

The product's tasks, futures, locks and gathers work on it as on asyncio's own loop. Inside a process, callbacks run in
the order in which they became ready, as asyncio promises. The seed chooses which process runs next: it runs until none
of its callbacks is ready. If no process can run, time jumps to the next timer. So a seed is a whole interleaving, and
can be repeated.

Every process has its own clocks: monotonic ones that started anywhere and run up to a few per cent fast or slow, and
wall clocks that are wrong or stand still. A process can stall (none of its callbacks run) and crash.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from tests.simulation.virtual_loop import VirtualLoop

NEVER_MS = 1 << 60
TASKS_KEPT_MAX = 64
"""Beyond it, the ended tasks of a process are dropped from its list."""
CLOSINGS_MAX = 100
"""How often a coroutine may wait again while a crash ends it."""


class Wait:
    """Suspend the current task until `wake_ms`."""

    __slots__ = ("wake_ms",)

    def __init__(self, wake_ms: int) -> None:
        self.wake_ms = wake_ms

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Scheduler)
        woken: asyncio.Future[None] = loop.create_future()
        loop.at_ms(self.wake_ms, _wake, woken)
        return (yield from woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


@dataclass(eq=False)
class Process:
    """A process stalls and crashes as a whole. `clock_rate` is in local seconds per true second."""

    name: str
    clock_rate: float = 1.0
    clock_offset_s: float = 0.0
    wall_offset_ms: int = 0
    wall_stands_still: bool = False
    stops_when_stalled: bool = False
    stalled_until_ms: int = 0
    stalled_total_ms: int = 0
    dead: bool = False
    ready: deque[asyncio.Handle] = field(default_factory=deque)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    context: Context = field(default_factory=Context)


_PROCESS: ContextVar[Process] = ContextVar("process")


class Scheduler(VirtualLoop):
    """Runs processes turn by turn. `disturb` is called before each turn, and may stall or crash the process."""

    def __init__(
        self, seed: int, *, traced: bool = False, disturb: Callable[[Process], None] = lambda process: None
    ) -> None:
        super().__init__()
        self.seed = seed
        self.traced = traced
        self.disturb = disturb
        self.steps = 0
        self.lines: list[str] = []
        self.random = random.Random(seed)
        self.current: Process | None = None
        self.network = Process("network")  # of the requests under way: it neither stalls nor crashes
        self._processes: list[Process] = []
        self._dead: list[Process] = []
        self._failure: BaseException | None = None

    # ---- processes

    def spawn(self, process: Process, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task; it may run from now on. If it raises, so does `step`."""
        if process not in self._processes:
            self._processes.append(process)
            process.context.run(_PROCESS.set, process)
        with self._running():
            task = process.context.run(self.create_task, coroutine, name=name)
            process.context.run(task.add_done_callback, self._note_failure)
        return task

    def kill(self, process: Process) -> None:
        """Crash: the process's tasks stop where they are. Its requests in flight belong to the network and continue."""
        process.dead = True
        process.ready.clear()
        self._processes.remove(process)
        self._dead.append(process)

    def close_all(self) -> None:
        """Kill all processes, and close the coroutines of all that were killed. Their last steps mean nothing."""
        for process in tuple(self._processes):
            self.kill(process)
        with self._running():
            for process in self._dead:
                while process.tasks:
                    process.context.run(_close, process.tasks.pop())

    def stall(self, process: Process, ms: int) -> None:
        """Stall the process for `ms`: none of its callbacks run."""
        process.stalled_until_ms = self.now_ms + ms
        process.stalled_total_ms += ms
        if self.traced:
            self.trace(f"{process.name:<12} stalls for {ms} ms")

    def end_stalls(self) -> None:
        """Let all stalled processes run again."""
        for process in self._processes:
            process.stalled_until_ms = 0

    def trace(self, text: str) -> None:
        """Record an event. Formatting is the caller's cost, so callers check `traced` first."""
        self.lines.append(f"{self.now_ms:>7} {text}")

    def step(self) -> bool:
        """One turn of a process. Returns False if nothing is left to do. Raises what a spawned task raised."""
        process = self._choose()
        if process is None:
            return False
        self.steps += 1
        if process is not self.network:
            self.disturb(process)
        if not process.dead:
            self.current = process
            with self._running():
                while process.ready and process.stalled_until_ms <= self.now_ms:
                    handle = process.ready.popleft()
                    if not handle.cancelled():
                        handle._run()
            self.current = None
        if self._failure is not None:
            raise self._failure
        return True

    def _choose(self) -> Process | None:
        while True:
            now_ms, able = self.now_ms, []
            next_ms = self._fire() or NEVER_MS
            for process in self._processes:
                if process.ready:
                    if process.stalled_until_ms <= now_ms:
                        able.append(process)
                    elif process.stalled_until_ms < next_ms:
                        next_ms = process.stalled_until_ms
            if able:
                return able[0] if len(able) == 1 else able[int(self.random.random() * len(able))]
            if next_ms == NEVER_MS:
                return None
            self.now_ms = next_ms

    def _enqueue(self, handle: asyncio.Handle) -> None:
        process = handle._context[_PROCESS]  # type: ignore[attr-defined]
        if not process.dead:
            process.ready.append(handle)

    def _adopt(self, task: asyncio.Task[Any]) -> None:
        tasks = _PROCESS.get().tasks
        if len(tasks) > TASKS_KEPT_MAX:
            tasks[:] = [each for each in tasks if not each.done()]
        tasks.append(task)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()

    @contextmanager
    def _running(self) -> Iterator[None]:
        hooks, before = sys.get_asyncgen_hooks(), asyncio._get_running_loop()
        sys.set_asyncgen_hooks(finalizer=_forget)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)


def _close(task: asyncio.Task[Any]) -> None:
    """End the coroutine of `task`. Where it waits once more on its way out, it ends there."""
    coroutine = task.get_coro()
    assert isinstance(coroutine, Coroutine)
    for _ in range(CLOSINGS_MAX):
        with suppress(Exception):
            coroutine.close()
            return


def _forget(generator: AsyncGenerator[Any, Any]) -> None:
    """A generator of a dead process needs no end."""


class ProcessClock:
    """The clocks of one process."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def monotonic(self) -> float:
        process = self._process
        elapsed_ms = self._scheduler.now_ms - (process.stalled_total_ms if process.stops_when_stalled else 0)
        return process.clock_offset_s + elapsed_ms * process.clock_rate / 1000

    def now_ms(self) -> int:
        return self._process.wall_offset_ms + (0 if self._process.wall_stands_still else self._scheduler.now_ms)

    async def sleep(self, seconds: float) -> None:
        await Wait(self._scheduler.now_ms + ceil(seconds * 1000 / self._process.clock_rate))
