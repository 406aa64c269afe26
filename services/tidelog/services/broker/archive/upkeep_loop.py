"""Runs the upkeep of segments (expiry, compaction, merging, garbage) of the shards that this broker leads.

- **One step at a time**, for the shard whose upkeep has been due longest, on the archiver's threads.
- **Producers first.** While producers wait, a step is put off, for `PATIENCE_S` at most: a log that is always written
  to needs upkeep most. While the archiver has fallen behind, it is put off for `PATIENCE_BEHIND_S`.
- **Newest settings.** A step first reads the journal to its end, so that it does not delete by an outdated retention.
- **No requests while nothing is due.** Due times come from manifests that pass through the broker (`ShardUpkeep`).
  Manifests that the leader has not seen are read one by one, at most one per `CHECK_EVERY_S`, and only `SETTLE_S` after
  the start, because partitions that are read or written until then need no extra read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter

from tidelog.coordinator.journal import Journal
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 0.5
PATIENCE_S = 60.0
PATIENCE_BEHIND_S = 600.0
SCHEDULED_AT_ONCE = 16
SETTLE_S = 30.0
CLOCK_JUMP_MS = 60_000
"""If the wall clock moves this far against the monotonic clock, every due time is computed again: due times are of the
wall clock, and the waits of some tasks of the monotonic clock."""


class UpkeepLoop(BackgroundLoop):
    """Upkeep of the shards that are led at each moment. `behind`: whether the archiver has fallen behind."""

    def __init__(self, shards: ShardSet, journal: Journal, runtime: Runtime, behind: Callable[[], bool]) -> None:
        super().__init__("upkeep", runtime)
        self._shards = shards
        self._behind = behind
        self._journal = journal
        self._one_step = asyncio.Lock()
        self._due_since_s: float | None = None
        self._read_from_s = self._clock.monotonic()
        self._skew_ms = self._skew_now_ms()

    def start(self) -> None:
        self._read_from_s = self._clock.monotonic() + SETTLE_S
        super().start()

    async def step(self) -> float:
        """A backlog is worked off without a pause."""
        self._follow()
        if self._schedule_some() or await self._run_one():
            return 0.0
        await self._read_one()
        return CHECK_EVERY_S

    async def run_all(self) -> None:
        """Run all upkeep that is due now, after reading all manifests whose due time is unknown."""
        self._follow()
        for led in self._serving():
            while led.serving and led.upkeep.has_unknown:
                await led.while_it_lasts(led.upkeep.read_unknown())
            while led.upkeep.schedule_some(SCHEDULED_AT_ONCE):
                pass
            while led.serving and led.upkeep.due_since_ms() is not None:
                await self._run_step(led)

    def _schedule_some(self) -> bool:
        """Whether more are left; other tasks run in between."""
        return any(led.upkeep.schedule_some(SCHEDULED_AT_ONCE) for led in self._serving())

    async def _run_one(self) -> bool:
        """Run a step for the shard that has been due longest, unless it has to wait. Returns whether one ran."""
        due = [(since_ms, led) for led in self._serving() if (since_ms := led.upkeep.due_since_ms()) is not None]
        if not due:
            self._due_since_s = None
            return False
        if not self._may_work():
            return False
        await self._run_step(min(due, key=itemgetter(0))[1])
        return True

    def _may_work(self) -> bool:
        now_s = self._clock.monotonic()
        if self._due_since_s is None:
            self._due_since_s = now_s
        waited_s = now_s - self._due_since_s
        if self._behind():
            return waited_s >= PATIENCE_BEHIND_S
        busy = any(led.leader.buffered_bytes > 0 for led in self._shards.led_shards())
        return not busy or waited_s >= PATIENCE_S

    async def _run_step(self, led: LedShard) -> None:
        async with self._one_step:
            await self._journal.catch_up()
            self._follow()
            if led.upkeep.due_since_ms() is not None:
                await led.while_it_lasts(led.upkeep.step())

    async def _read_one(self) -> None:
        unseen = next((led for led in self._serving() if led.upkeep.has_unknown), None)
        if unseen and self._clock.monotonic() >= self._read_from_s:
            await unseen.while_it_lasts(unseen.upkeep.read_unknown())

    def _follow(self) -> None:
        skew_ms = self._skew_now_ms()
        clock_was_set = abs(skew_ms - self._skew_ms) >= CLOCK_JUMP_MS
        if clock_was_set:
            self._skew_ms = skew_ms
        for led in self._serving():
            led.upkeep.follow_topics()
            if clock_was_set:
                led.upkeep.reschedule_all()

    def _skew_now_ms(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic() * 1000)

    def _serving(self) -> list[LedShard]:
        return [led for led in self._shards.led_shards() if led.serving]
