"""A clock that stands still until a test moves it; then it wakes the sleepers whose time has come."""

from __future__ import annotations

import asyncio


class SteppedClock:
    """Implements `Clock`."""

    def __init__(self) -> None:
        self._now_s = 1_000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._now_s

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._now_s * 1_000)

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_s + max(seconds, 0.0), woken))
        self._wake()
        await woken

    def advance(self, seconds: float) -> None:
        """Move the clock; sleepers whose time has come continue in the loop's next turn."""
        self._now_s += seconds
        self._wake()

    async def run(self, seconds: float) -> None:
        """Move the clock from sleeper to sleeper until `seconds` are over, and let each do its work."""
        until_s = self._now_s + seconds
        await _turns()
        while due := [at_s for at_s, woken in self._sleepers if at_s <= until_s and not woken.done()]:
            self.advance(min(due) - self._now_s)
            await _turns()
        self.advance(until_s - self._now_s)
        await _turns()

    def _wake(self) -> None:
        for until_s, woken in sorted(self._sleepers, key=lambda sleeper: sleeper[0]):
            if woken.done() or until_s <= self._now_s:
                self._sleepers.remove((until_s, woken))
                if not woken.done():
                    woken.set_result(None)


async def turn() -> None:
    """Let everything that is ready run once."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.call_soon(over.set_result, None)
    await over


async def _turns() -> None:
    """Let everything run that needs neither time nor I/O."""
    for _ in range(100):
        await turn()
