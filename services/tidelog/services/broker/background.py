"""Threads for work that nobody waits for, as archiving: they run when no request wants the processor.

On Linux each thread has a priority of its own, so an encoder of segments gives way to one of WAL entries; elsewhere
the two share alike.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

NICENESS = 10
"""How far behind the others these threads stand, 0 to 19."""


def background_threads(count: int) -> ThreadPoolExecutor:
    """`count` threads of low priority."""
    return ThreadPoolExecutor(count, thread_name_prefix="background", initializer=_stand_back)


def _stand_back() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
