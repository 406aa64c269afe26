"""The loop that looks after segments, behind everybody's back: one step at a time, over the shards that are led.

It runs beside the archiver (`archiving`) and on its thread. While producers wait it waits, but not for ever: what has
been due for `PATIENCE_S` is done under load too, since a log that is always written to wants upkeep most. While the
archiver has fallen behind it waits ten times as long: what is not archived yet comes first. A step is
begun on the newest topics, so that what somebody has just allowed to be kept is not deleted by an older rule.

Nothing due costs no request. When partitions are due is known from their manifests (`shard_upkeep`); those that the
leader has not seen are looked at one by one, no faster than one each `CHECK_EVERY_S`, and not in the first
`SETTLE_S`: a broker that starts has better things to do, and whoever is read or written by then needs no look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from operator import itemgetter

from tidelog.coordinator.journal import Journal
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 0.5
PAUSE_AFTER_ERROR_S = 5.0
PATIENCE_S = 60.0
PATIENCE_BEHIND_S = 600.0
JUDGED_AT_ONCE = 16
SETTLE_S = 30.0
CLOCK_JUMP_MS = 60_000
"""By how much the wall clock has to leave the monotonic one for every due time to be found out anew: partitions are due
by the wall clock, and some tasks' waits by the other."""

_log = logging.getLogger(__name__)


class UpkeepWorker:
    """Runs from `start` to `close`, over the shards that are led at each time. `behind` tells whether the archiver has
    fallen behind."""

    def __init__(self, shards: ShardSet, journal: Journal, runtime: Runtime, behind: Callable[[], bool]) -> None:
        self._shards = shards
        self._behind = behind
        self._journal = journal
        self._clock = runtime.clock
        self._one_step = asyncio.Lock()
        self._due_since_s: float | None = None
        self._look_from_s = self._clock.monotonic()
        self._skew_ms = self._skew_now_ms()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._look_from_s = self._clock.monotonic() + SETTLE_S
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop between any two object operations; the next broker goes on."""
        if self._loop:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def tend_all(self) -> None:
        """Do all that is due now, and look at all partitions first."""
        self._follow()
        for led in self._serving():
            while led.serving and led.upkeep.has_unknown:
                await led.look()
            while led.upkeep.judge(JUDGED_AT_ONCE):
                pass
            while led.serving and led.upkeep.due_since_ms() is not None:
                await self._tend(led)

    async def _run(self) -> None:
        while True:
            pause_s = CHECK_EVERY_S
            try:
                self._follow()
                if self._judge_some() or await self._tend_one():
                    pause_s = 0.0  # a backlog is worked off without a pause
                else:
                    await self._look_at_one()
            except TidelogError as error:
                _log.warning("upkeep goes on in %.0f s: %s", PAUSE_AFTER_ERROR_S, error)
                pause_s = PAUSE_AFTER_ERROR_S
            except Exception:
                _log.exception("upkeep failed by a defect; it goes on in %.0f s", PAUSE_AFTER_ERROR_S)
                pause_s = PAUSE_AFTER_ERROR_S
            await self._clock.sleep(pause_s)

    def _judge_some(self) -> bool:
        """Whether more are left: the event loop has its turn in between."""
        return any(led.upkeep.judge(JUDGED_AT_ONCE) for led in self._serving())

    async def _tend_one(self) -> bool:
        """A step for the shard that has waited longest, unless producers wait; whether there was one."""
        due = [(since_ms, led) for led in self._serving() if (since_ms := led.upkeep.due_since_ms()) is not None]
        if not due:
            self._due_since_s = None
            return False
        if not self._may_work():
            return False
        await self._tend(min(due, key=itemgetter(0))[1])
        return True

    def _may_work(self) -> bool:
        """Something is due: whether now is the time for it."""
        now_s = self._clock.monotonic()
        if self._due_since_s is None:
            self._due_since_s = now_s
        waited_s = now_s - self._due_since_s
        if self._behind():
            return waited_s >= PATIENCE_BEHIND_S
        busy = any(led.leader.buffered_bytes > 0 for led in self._shards.led_shards())
        return not busy or waited_s >= PATIENCE_S

    async def _tend(self, led: LedShard) -> None:
        async with self._one_step:
            await self._journal.catch_up()
            self._follow()
            if led.upkeep.due_since_ms() is not None:
                await led.tend()

    async def _look_at_one(self) -> None:
        unseen = next((led for led in self._serving() if led.upkeep.has_unknown), None)
        if unseen and self._clock.monotonic() >= self._look_from_s:
            await unseen.look()

    def _follow(self) -> None:
        """Take over what has changed in the world."""
        skew_ms = self._skew_now_ms()
        clock_was_set = abs(skew_ms - self._skew_ms) >= CLOCK_JUMP_MS
        if clock_was_set:
            self._skew_ms = skew_ms
        for led in self._serving():
            led.upkeep.follow_topics()
            if clock_was_set:
                led.upkeep.look_at_all()

    def _skew_now_ms(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic() * 1000)

    def _serving(self) -> list[LedShard]:
        return [led for led in self._shards.led_shards() if led.serving]
