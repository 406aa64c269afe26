"""The machine's clocks; a test can set each of them ahead or back while a broker runs."""

from __future__ import annotations

from tidelog.storage.runtime import SystemClock

GRACE_S = 900.0
"""The default of ``delete.grace.ms``."""


class SetClock(SystemClock):
    """`ahead_s`: offset of the monotonic clock, which only moves forward. `wall_ahead_ms`: offset of the wall clock.
    `sleeps`: number of waits begun."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.wall_ahead_ms = 0
        self.sleeps = 0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    def now_ms(self) -> int:
        return super().now_ms() + self.wall_ahead_ms

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await super().sleep(seconds)

    def pass_time(self, seconds: float) -> None:
        """Move both clocks forward."""
        self.ahead_s += seconds
        self.wall_ahead_ms += round(seconds * 1000)
