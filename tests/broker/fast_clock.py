"""A clock that runs faster than the machine's, so that a test covers hours."""

from __future__ import annotations

import asyncio
import time


class FastClock:
    """Implements `Clock`: one second of the machine is `factor` seconds here."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._began_s = time.monotonic()
        self._began_ms = time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return (time.monotonic() - self._began_s) * self._factor

    def now_ms(self) -> int:
        return self._began_ms + int(self.monotonic() * 1_000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._factor)
