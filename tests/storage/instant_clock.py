"""A clock on which waiting takes no time: it jumps ahead."""

from __future__ import annotations


class InstantClock:
    """Implements `Clock`. `slept_s` lists the waits so far."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds
