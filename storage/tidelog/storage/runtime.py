"""Clocks, ids and randomness, which components receive as values so that a run can be replayed from a seed.

Only this module may use the operating system's clock or randomness. ruff bans them in all other modules.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Two clocks and a wait. `monotonic` is for durations; `now_ms` is for timestamps of records only."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start. Never goes back, and counts the time while the machine is suspended."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        ...


class Entropy(Protocol):
    """Ids and jitter."""

    def new_id(self) -> str:
        """32 lower-case hexadecimal digits, unique."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number in ``[low, high)``, evenly spread."""
        ...


_MONOTONIC_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux, CLOCK_MONOTONIC stops while the machine is suspended; then old knowledge of the floor would seem fresh
(`floor_trust`). macOS's does not stop. See the simulation's mutation "clocks stop with the machine"."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC_CLOCK)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemEntropy:
    """The operating system's randomness."""

    def new_id(self) -> str:
        return uuid.uuid4().hex

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)


class SeededEntropy:
    """The same ids and numbers for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def new_id(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


@dataclass(frozen=True)
class Runtime:
    """A component's clock and randomness."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)


def pause(seconds: float) -> None:
    """Block this thread for `seconds`. For synchronous clients; never call it on an event loop."""
    time.sleep(seconds)
