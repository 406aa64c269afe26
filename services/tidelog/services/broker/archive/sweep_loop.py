"""Decides when this process sweeps the bucket.

One process sweeps at a time, while it has the `Turn`: in a cluster the leader of shard 0, as long as it leads; a
compactor always. A sweep takes minutes or hours. When the turn ends, the sweep stops between two requests, and the next
one starts over.

The first sweep starts `FIRST_AFTER_S` after the turn began, or after an interval if that is shorter: a starting process
has more urgent work, but one that is restarted daily must sweep as well. After that there is one sweep per interval. A
failed sweep starts over after a minute, then after doubling waits of at most an interval, because each sweep begins
with a listing of the bucket, which costs requests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Protocol

from tidelog.services.broker.archive.slow_sweep import SlowSweep
from tidelog.services.broker.telemetry.measurements import SweepCounts
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.backoff import Backoff
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 1.0
FIRST_AFTER_S = 3_600.0
FIRST_PAUSE_S = 60.0
"""The wait after a failed sweep; doubled after each further one."""


class Turn(Protocol):
    """A period in which this process sweeps."""

    async def while_it_lasts(self, work: Coroutine[None, None, None]) -> None:
        """Run `work`, and cancel it when the period ends. Raises what `work` raises."""


class SweepLoop(BackgroundLoop):
    """Sweeps while `turn_now` returns a turn: the same object until the turn ends, None while another process has it.
    `interval_s` 0 disables sweeps."""

    def __init__(
        self, sweep: SlowSweep, turn_now: Callable[[], Turn | None], runtime: Runtime, interval_s: float
    ) -> None:
        super().__init__("the sweep", runtime, Backoff(first_s=FIRST_PAUSE_S, max_s=interval_s, least_share=1.0))
        self._sweep = sweep
        self._turn_now = turn_now
        self._interval_s = interval_s
        self._turn: Turn | None = None
        self._not_before_s = self._due_at_s = runtime.clock.monotonic()

    @property
    def counts(self) -> SweepCounts:
        """Sums over all sweeps of this process."""
        return self._sweep.counts

    def start(self) -> None:
        if self._interval_s > 0:
            super().start()

    async def step(self) -> float:
        turn = self._due_turn()
        if turn is not None:
            await turn.while_it_lasts(self._sweep.run())
            if self._turn_now() is turn:  # otherwise the sweep was cancelled and starts over in the next turn
                self._not_before_s = self._due_at_s = self._clock.monotonic() + self._interval_s
        return CHECK_EVERY_S

    def _due_turn(self) -> Turn | None:
        """The turn, if a sweep is due in it."""
        turn, now_s = self._turn_now(), self._clock.monotonic()
        if turn is not self._turn:
            self._turn = turn
            self._due_at_s = max(self._not_before_s, now_s + min(FIRST_AFTER_S, self._interval_s))
        return turn if now_s >= self._due_at_s else None
