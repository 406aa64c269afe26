"""When the bucket is swept, and by whom: every so often, by the process whose turn it is.

Whose turn it is says a `Turn`: the leader of shard 0 for as long as it leads, in a cluster of brokers, of which there
is one at a time; a compactor always. A sweep lasts for minutes or hours and is cut off when the turn ends, between any
two requests, as by a crash; the next one begins anew.

A sweep that fails begins anew after a minute, then after longer and longer, an interval at most: each begins with a
listing of the bucket, which costs requests.

The first sweep comes `FIRST_AFTER_S` after the turn began, since a process that starts has better things to do, and one
that is restarted every day should sweep all the same; then one each interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol

from tidelog.services.workers.sweeping.slow_sweep import SlowSweep, SweepCounts
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 1.0
FIRST_AFTER_S = 3_600.0
FIRST_PAUSE_S = 60.0
"""After a sweep that failed; doubled after each further one."""

_log = logging.getLogger(__name__)


class Turn(Protocol):
    """A time in which this process is the one that sweeps."""

    async def while_it_lasts(self, work: Coroutine[None, None, None]) -> None:
        """Do `work`, or as much of it as there is time for. Raises what it raises."""
        ...


class SweepLoop:
    """Runs from `start` to `close`. `turn_now` gives the same object as long as the turn lasts, None while it is
    another's. `interval_s` 0: never."""

    def __init__(
        self, sweep: SlowSweep, turn_now: Callable[[], Turn | None], runtime: Runtime, interval_s: float
    ) -> None:
        self._sweep = sweep
        self._turn_now = turn_now
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._interval_s = interval_s
        self._pauses = Backoff(first_s=FIRST_PAUSE_S, max_s=interval_s, least_share=1.0)
        self._failures = 0
        self._turn: Turn | None = None
        self._not_before_s = runtime.clock.monotonic()
        self._due_at_s = self._not_before_s
        self._loop: asyncio.Task[None] | None = None

    @property
    def counts(self) -> SweepCounts:
        """What was swept up to now."""
        return self._sweep.counts

    def start(self) -> None:
        if self._interval_s > 0:
            self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop between any two requests."""
        if self._loop:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            turn = self._due_turn()
            if turn is None:
                continue
            pause_s = await self._sweep_in(turn)
            if self._turn_now() is turn:  # else it was cut off, and begins anew whenever the turn comes back
                self._not_before_s = self._due_at_s = self._clock.monotonic() + pause_s

    async def _sweep_in(self, turn: Turn) -> float:
        """One sweep; the seconds until the next one."""
        try:
            await turn.while_it_lasts(self._sweep.run())
        except TidelogError as error:
            self._failures += 1
            pause_s = self._pauses.delay_s(self._failures, self._entropy)
            _log.warning("the sweep begins anew in %.0f s: %s", pause_s, error)
            return pause_s
        except Exception:
            _log.exception("the sweep failed by a defect; the next one is in %.0f s", self._interval_s)
        self._failures = 0
        return self._interval_s

    def _due_turn(self) -> Turn | None:
        """The turn, if it is time for a sweep."""
        turn, now_s = self._turn_now(), self._clock.monotonic()
        if turn is not self._turn:
            self._turn = turn
            self._due_at_s = max(self._not_before_s, now_s + min(FIRST_AFTER_S, self._interval_s))
        return turn if now_s >= self._due_at_s else None
