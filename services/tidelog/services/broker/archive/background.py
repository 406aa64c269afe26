"""Threads for work that nobody waits for, as archiving: they run when no request wants the processor.

On Linux each thread has a priority of its own, so an encoder of segments gives way to one of WAL entries; elsewhere
the two share alike. A processor that is wanted all the time would leave them next to nothing, and the WAL would grow
without end. So work that has fallen behind is `hurried`: done by threads that take their share as any other.
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
"""How far behind the others these threads stand, 0 to 19."""


class BackgroundThreads(Executor):
    """`count` threads of low priority, and as many of the ordinary one for what is submitted while it is `hurried`: a
    thread may step back by itself, but not forward again."""

    def __init__(self, count: int) -> None:
        self.hurried = False
        self._patient = ThreadPoolExecutor(count, thread_name_prefix="background", initializer=_stand_back)
        self._hurrying = ThreadPoolExecutor(count, thread_name_prefix="behind")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return (self._hurrying if self.hurried else self._patient).submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for threads in (self._patient, self._hurrying):
            threads.shutdown(wait, cancel_futures=cancel_futures)


def _stand_back() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
