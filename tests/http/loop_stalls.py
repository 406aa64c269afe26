"""How long one turn of the event loop takes at the most: for so long every other request waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class Stalls:
    """`longest_s`: CPU time of the loop's thread in its longest turn. What other processes take of the machine, and
    waiting for the GIL, are not in it."""

    longest_s: float = 0.0
    turns: int = 0


@asynccontextmanager
async def watched_loop() -> AsyncIterator[Stalls]:
    """Watches the running loop until the block ends."""
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
    gc.freeze()  # as `tidelog serve` does: what the tests before left is not walked over in here
    watching = asyncio.ensure_future(watch())
    try:
        yield stalls
    finally:
        watching.cancel()
        gc.unfreeze()
