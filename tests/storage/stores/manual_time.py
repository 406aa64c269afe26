"""A clock that moves only when somebody sleeps, and a runtime with it."""

from __future__ import annotations

from tidelog.storage.runtime import Runtime, SeededEntropy


class ManualClock:
    """Starts at 1,000 s. A sleep returns at once and moves it. `sleeps` lists the requested waits in seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_s * 1_000)

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds


def manual_runtime(seed: int = 0) -> tuple[ManualClock, Runtime]:
    clock = ManualClock()
    return clock, Runtime(clock, SeededEntropy(seed))
