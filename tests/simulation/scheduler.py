"""A trampoline: coroutines of several processes under one seeded choice and one virtual time. No asyncio, no threads.

A coroutine suspends only at a `Wait`, which names the virtual millisecond at which it may continue. The seed chooses
one of all tasks that may run now; if none may, time jumps ahead. So a seed is a whole interleaving, and can be
repeated.

Every process has its own clocks: monotonic ones that started anywhere and run up to a few per cent fast or slow, and
wall clocks that are wrong or stand still. A process can stall (none of its tasks run) and crash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from tests.simulation.inline_loop import inline_threads

NEVER_MS = 1 << 60


class Wait:
    """Suspend the current task until `wake_ms`, or until something wakes it earlier."""

    __slots__ = ("wake_ms",)

    def __init__(self, wake_ms: int) -> None:
        self.wake_ms = wake_ms

    def __await__(self) -> Generator[Wait, None, None]:
        yield self


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


@dataclass(eq=False)
class Task:
    """One coroutine of a process."""

    process: Process
    name: str
    coroutine: Coroutine[Wait, None, None]
    wake_ms: int


@dataclass
class Scheduler:
    """Runs tasks one step at a time. `disturb` is called before each step and may stall or crash the task's process."""

    seed: int
    traced: bool = False
    now_ms: int = 0
    steps: int = 0
    tasks: list[Task] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    disturb: Callable[[Task], None] = lambda task: None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.current: Task | None = None

    def spawn(self, process: Process, name: str, coroutine: Coroutine[Any, Any, None]) -> Task:
        """Start a task; it may run from now on."""
        task = Task(process, name, coroutine, self.now_ms)
        self.tasks.append(task)
        return task

    def kill(self, process: Process) -> None:
        """Crash: the process's tasks end where they are. Its requests in flight belong to the network and continue."""
        for task in [task for task in self.tasks if task.process is process]:
            self.tasks.remove(task)
            if task is not self.current:
                task.coroutine.close()

    def stall(self, process: Process, ms: int) -> None:
        """Stall the process for `ms`: none of its tasks run."""
        process.stalled_until_ms = self.now_ms + ms
        process.stalled_total_ms += ms
        if self.traced:
            self.trace(f"{process.name:<12} stalls for {ms} ms")

    def trace(self, text: str) -> None:
        """Record an event. Formatting is the caller's cost, so callers check `traced` first."""
        self.lines.append(f"{self.now_ms:>7} {text}")

    def step(self) -> bool:
        """Run one task up to its next `Wait`. Return False when no task is left. Raises what the task raises."""
        task = self._choose()
        if task is None:
            return False
        self.steps += 1
        self.current = task
        self.disturb(task)
        if task not in self.tasks:
            self.current = None
            task.coroutine.close()
            return True
        if task.process.stalled_until_ms <= self.now_ms:
            self._resume(task)
        self.current = None
        return True

    def _resume(self, task: Task) -> None:
        try:
            with inline_threads():
                wait = task.coroutine.send(None)
        except StopIteration:
            self.tasks.remove(task)
        else:
            task.wake_ms = wait.wake_ms

    def _choose(self) -> Task | None:
        while self.tasks:
            now_ms, next_ms, ready = self.now_ms, NEVER_MS, []
            for task in self.tasks:
                at_ms = task.wake_ms
                if task.process.stalled_until_ms > at_ms:
                    at_ms = task.process.stalled_until_ms
                if at_ms <= now_ms:
                    ready.append(task)
                elif at_ms < next_ms:
                    next_ms = at_ms
            if ready:
                return ready[0] if len(ready) == 1 else ready[int(self.random.random() * len(ready))]
            self.now_ms = next_ms
        return None


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
