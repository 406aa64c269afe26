"""Bounds the longest turn of the event loop: for that long every other request waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.attempts import within

REFERENCE_S = 0.012
"""CPU time of `_reference_s` on the machine that the limits of tests are for."""


@asynccontextmanager
async def watched_loop(longest_s_max: float) -> AsyncIterator[None]:
    """Watch the running loop until the block ends, in one of several `attempts`. Raise `TooSlow` if a turn took longer
    than the bound.

    The time of a turn is the CPU time of the loop's thread, which excludes other processes and waits for the GIL. On a
    slower or busy machine it is scaled to the speed of the machine that the bounds are for.
    """
    turns_s: list[float] = []
    gc.collect()
    gc.freeze()  # like `tidelog serve`: garbage collection does not scan the objects of earlier tests
    reference_s = _reference_s()
    watching = asyncio.ensure_future(_watch(turns_s))
    try:
        yield
    finally:
        watching.cancel()
        gc.unfreeze()
    slowness = max(1.0, reference_s / REFERENCE_S, _reference_s() / REFERENCE_S)
    within(longest_s_max, max(turns_s) / slowness, f"the longest of {len(turns_s)} turns of the loop")


async def _watch(turns_s: list[float]) -> None:
    """Append the time of each turn of the loop."""
    before_s = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now_s = time.thread_time()
        turns_s.append(now_s - before_s)
        before_s = now_s


def _reference_s() -> float:
    """The CPU time that this machine needs for a fixed piece of work."""
    before = time.thread_time()
    length = sum(len(str(number)) for number in range(100_000))
    assert length == 488_890
    return time.thread_time() - before
