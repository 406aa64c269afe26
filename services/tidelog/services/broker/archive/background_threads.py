"""Threads of low priority for background work: archiving, and after it the upkeep of segments.

There are as many threads of each kind as processors, and `ProcessorTurns` decides how many work at once. On Linux each
thread has its own priority: an encoder of segments yields to an encoder of WAL entries, and merging yields to
archiving. Elsewhere all get the same share. On a processor that is always busy, low priority leaves little. So work
that has fallen behind is `hurried`: it runs on threads of ordinary priority.

The threads keep the policy SCHED_OTHER. A thread under SCHED_IDLE gets so little of a processor that others keep busy
that, if it holds the GIL, the whole broker stands still for a second or more (ADR 0033).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from tidelog.services.broker.archive.processor_turns import ProcessorTurns, Work

P = ParamSpec("P")
T = TypeVar("T")

NICENESS = {Work.ARCHIVE: 10, Work.UPKEEP: 15}
"""The `nice` values of these threads, 0 to 19. The scheduler gives archiving three times the share of upkeep."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class BackgroundThreads(Executor):
    """The threads of one kind of `work`: as many of low priority as there are processors, which take `turns`, and as
    many of ordinary priority for work submitted while `hurried` is set. A thread can lower its own priority but not
    raise it again."""

    def __init__(self, turns: ProcessorTurns, work: Work = Work.ARCHIVE) -> None:
        self.count = turns.processors
        self.hurried = False
        self._turns = turns
        self._work = work
        self._patient = ThreadPoolExecutor(
            self.count, thread_name_prefix="background", initializer=_lower_priority, initargs=(NICENESS[work],)
        )
        self._hurrying = ThreadPoolExecutor(self.count, thread_name_prefix="behind")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        call = partial(fn, *args, **kwargs)
        return self._hurrying.submit(call) if self.hurried else self._patient.submit(self._in_turn, call)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for threads in (self._patient, self._hurrying):
            threads.shutdown(wait, cancel_futures=cancel_futures)

    def _in_turn(self, call: Callable[[], T]) -> T:
        with self._turns.turn(self._work):
            return call()


def _lower_priority(niceness: int) -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
