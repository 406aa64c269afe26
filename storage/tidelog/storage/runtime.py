"""Clocks, ids and randomness, handed in so that a run can be replayed from a seed.

The only module that may touch the operating system's clock or its randomness; ruff bans them everywhere else.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Two clocks and a wait. Durations use `monotonic`; only record timestamps use `now_ms`."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back, nor stands still while the machine is suspended."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or sooner never."""
        ...


class Entropy(Protocol):
    """Ids and jitter."""

    def new_id(self) -> str:
        """32 lower-case hexadecimal digits, unique."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number in ``[low, high)``, evenly spread."""
        ...


_RUNS_ON_IN_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's CLOCK_MONOTONIC stands still while the machine is suspended, and what was known of the floor seems fresh when
it is old (`floor_trust`); macOS's does not. See the simulation's mutation "clocks stop with the machine"."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.clock_gettime(_RUNS_ON_IN_SUSPENSION)

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
    """What a component needs of the world besides the bucket."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)


def pause(seconds: float) -> None:
    """Block this thread for `seconds`. For synchronous clients only; nothing on an event loop calls it."""
    time.sleep(seconds)
