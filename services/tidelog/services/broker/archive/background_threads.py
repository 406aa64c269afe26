"""Threads of low priority for background work such as archiving.

On Linux each thread has its own priority, so an encoder of segments yields to an encoder of WAL entries. Elsewhere both
get the same share. On a processor that is always busy, low priority leaves almost nothing, and the WAL would grow
without bound. So work that has fallen behind is `hurried`: it runs on threads of ordinary priority.
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

NICENESS = 10
"""The `nice` value of these threads, 0 to 19."""


class BackgroundThreads(Executor):
    """`count` threads of low priority, and as many of ordinary priority for work submitted while `hurried` is set. A
    thread can lower its own priority but not raise it again."""

    def __init__(self, count: int) -> None:
        self.hurried = False
        self._patient = ThreadPoolExecutor(count, thread_name_prefix="background", initializer=_lower_priority)
        self._hurrying = ThreadPoolExecutor(count, thread_name_prefix="behind")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return (self._hurrying if self.hurried else self._patient).submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for threads in (self._patient, self._hurrying):
            threads.shutdown(wait, cancel_futures=cancel_futures)


def _lower_priority() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
