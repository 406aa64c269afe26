"""Threads of low priority for background work: archiving, and after it the upkeep of segments.

There are as many threads as processors, so background work uses all that are idle. On Linux each thread has its own
priority: an encoder of segments yields to an encoder of WAL entries, and merging yields to archiving. Elsewhere all get
the same share. On a processor that is always busy, low priority leaves almost nothing. So work that has fallen behind
is `hurried`: it runs on threads of ordinary priority.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ARCHIVE_NICENESS = 10
UPKEEP_NICENESS = 15
"""The `nice` values of these threads, 0 to 19. The scheduler gives archiving three times the share of upkeep."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class BackgroundThreads(Executor):
    """`count` threads of low priority, and as many of ordinary priority for work submitted while `hurried` is set. A
    thread can lower its own priority but not raise it again."""

    def __init__(self, count: int, niceness: int = ARCHIVE_NICENESS) -> None:
        self.count = count
        self.hurried = False
        self._patient = ThreadPoolExecutor(
            count, thread_name_prefix="background", initializer=_lower_priority, initargs=(niceness,)
        )
        self._hurrying = ThreadPoolExecutor(count, thread_name_prefix="behind")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return (self._hurrying if self.hurried else self._patient).submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for threads in (self._patient, self._hurrying):
            threads.shutdown(wait, cancel_futures=cancel_futures)


def _lower_priority(niceness: int) -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
