"""Measures the longest turn of the event loop: for that long every other request waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

REFERENCE_S = 0.012
"""CPU time of `_reference_s` on the machine that the limits of tests are for."""


@dataclass
class Stalls:
    """`longest_s`: CPU time of the loop's thread in its longest turn. It excludes other processes and waits for the
    GIL. On a slower or busy machine it is scaled to the speed of the machine that the limits are for."""

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
    reference_s = _reference_s()
    watching = asyncio.ensure_future(watch())
    try:
        yield stalls
    finally:
        watching.cancel()
        gc.unfreeze()
        stalls.longest_s /= max(1.0, reference_s / REFERENCE_S, _reference_s() / REFERENCE_S)


def _reference_s() -> float:
    """The CPU time that this machine needs for a fixed piece of work."""
    before = time.thread_time()
    length = sum(len(str(number)) for number in range(100_000))
    assert length == 488_890
    return time.thread_time() - before
