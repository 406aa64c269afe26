"""Measures the longest turn of the event loop: for that long every other request waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class Stalls:
    """`longest_s`: CPU time of the loop's thread in its longest turn. It excludes other processes and waits for the
    GIL."""

    longest_s: float = 0.0
    turns: int = 0


@asynccontextmanager
async def watched_loop() -> AsyncIterator[Stalls]:
    """Watch the running loop until the block ends."""
    stalls = Stalls()

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            stalls.longest_s = max(stalls.longest_s, now - before)
            stalls.turns += 1
            before = now

    gc.collect()
    gc.freeze()  # like `tidelog serve`: garbage collection does not scan the objects of earlier tests
    watching = asyncio.ensure_future(watch())
    try:
        yield stalls
    finally:
        watching.cancel()
        gc.unfreeze()
