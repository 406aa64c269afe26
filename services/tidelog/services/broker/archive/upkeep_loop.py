"""Runs the upkeep of segments (expiry, compaction, merging) of the shards that this broker leads.

- **Steps side by side**, of different topics, on threads whose priority is below the archiver's. There are as many as
  idle processors allow, at most `STEPS_AT_ONCE_MAX`, because each holds `archiver.memory.bytes`. While producers wait
  or the archiver has fallen behind, there is one.
- **Producers first.** While producers wait, a step is put off, for `PATIENCE_S` at most: a log that is always written
  to needs upkeep most. While the archiver has fallen behind, it is put off for `PATIENCE_BEHIND_S`; from then on upkeep
  gets its share of the processors, too.
- **Large merges wait** until the broker has been idle for `broker_load.IDLE_AFTER_S`. Then all due times are computed
  again. When load returns, no further one begins.
- **Newest settings.** A step first reads the journal to its end, so that it does not delete by an outdated retention.
- **No requests while nothing is due.** Due times come from versions that pass through the broker (`ShardUpkeep`).
  Manifests and lists that the leader has not seen are read one by one, at most one per `CHECK_EVERY_S`, and only
  `SETTLE_S` after the start, because those that are read or written until then need no extra read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.coordinator.journal import Journal
from tidelog.services.broker.archive.background_threads import BackgroundThreads
from tidelog.services.broker.archive.broker_load import BrokerLoad
from tidelog.services.broker.archive.side_by_side import SideBySide
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 0.5
PATIENCE_S = 60.0
PATIENCE_BEHIND_S = 600.0
STEPS_AT_ONCE_MAX = 2
SCHEDULED_AT_ONCE = 16
SETTLE_S = 30.0
CLOCK_JUMP_MS = 60_000
"""If the wall clock moves this far against the monotonic clock, every due time is computed again: due times are of the
wall clock, and the waits of some tasks of the monotonic clock."""


class UpkeepLoop(BackgroundLoop):
    """Upkeep of the shards that are led at each moment. `behind`: whether the archiver has fallen behind. The loop
    observes `load`."""

    def __init__(
        self,
        shards: ShardSet,
        journal: Journal,
        runtime: Runtime,
        threads: BackgroundThreads,
        behind: Callable[[], bool],
        load: BrokerLoad,
    ) -> None:
        super().__init__("upkeep", runtime)
        self._shards = shards
        self._behind = behind
        self._load = load
        self._journal = journal
        self._threads = threads
        at_once = min(threads.count, STEPS_AT_ONCE_MAX)
        self._steps: SideBySide[tuple[int, str]] = SideBySide(
            "upkeep of shard and topic", self._clock, at_once=at_once, pause_s=lambda _: CHECK_EVERY_S
        )
        self._due_since_s: float | None = None
        self._read_from_s = self._clock.monotonic()
        self._skew_ms = self._skew_now_ms()

    def start(self) -> None:
        self._read_from_s = self._clock.monotonic() + SETTLE_S
        super().start()

    async def close(self) -> None:
        await super().close()
        await self._steps.close()

    async def step(self) -> float:
        """A backlog is worked off without a pause."""
        self._follow()
        if self._schedule_some() or self._begin_one():
            return 0.0
        if len(self._steps):
            await self._steps.one_ended(CHECK_EVERY_S)
            return 0.0
        await self._read_one()
        return CHECK_EVERY_S

    async def run_all(self) -> None:
        """Run all upkeep that is due now, after reading all that is needed to know it."""
        self._follow()
        for led in self._serving():
            while led.serving and led.upkeep.has_unknown:
                await led.while_it_lasts(led.upkeep.read_unknown())
                self._schedule_all(led)
            self._schedule_all(led)
            while led.serving and (topic_id := led.upkeep.take_due()):
                await self._run_step(led, topic_id)
                self._schedule_all(led)

    def _schedule_all(self, led: LedShard) -> None:
        while led.upkeep.schedule_some(SCHEDULED_AT_ONCE):
            pass

    def _schedule_some(self) -> bool:
        """Whether more are left; other tasks run in between."""
        return any(led.upkeep.schedule_some(SCHEDULED_AT_ONCE) for led in self._serving())

    def _begin_one(self) -> bool:
        """Begin a step for the shard that has been due longest, unless it has to wait. Returns whether one began."""
        due = [(since_ms, led.shard) for led in self._serving() if (since_ms := led.upkeep.due_since_ms()) is not None]
        waited_s = self._waited_s(bool(due))
        self._threads.hurried = waited_s >= PATIENCE_BEHIND_S
        if not due or len(self._steps) >= self._steps_wanted(waited_s):
            return False
        led = self._shards.led_shard(min(due)[1])
        topic_id = led.upkeep.take_due()
        if topic_id and self._steps.may_begin((led.shard, topic_id)):
            self._steps.begin((led.shard, topic_id), lambda: self._run_step(led, topic_id))
        return True

    def _waited_s(self, is_due: bool) -> float:
        """For how long a step has been due or running, without a break."""
        now_s = self._clock.monotonic()
        if not is_due and not len(self._steps):
            self._due_since_s = None
        elif self._due_since_s is None:
            self._due_since_s = now_s
        return 0.0 if self._due_since_s is None else now_s - self._due_since_s

    def _steps_wanted(self, waited_s: float) -> int:
        """How many steps may run at once, if one has been due for so long."""
        if self._behind():
            return 1 if waited_s >= PATIENCE_BEHIND_S else 0
        if self._shards.producers_wait:
            return 1 if waited_s >= PATIENCE_S else 0
        return self._steps.at_once

    async def _run_step(self, led: LedShard, topic_id: str) -> None:
        await self._journal.catch_up()
        self._follow()
        await led.while_it_lasts(led.upkeep.step(topic_id))

    async def _read_one(self) -> None:
        unseen = next((led for led in self._serving() if led.upkeep.has_unknown), None)
        if unseen and self._clock.monotonic() >= self._read_from_s:
            await unseen.while_it_lasts(unseen.upkeep.read_unknown())

    def _follow(self) -> None:
        skew_ms = self._skew_now_ms()
        clock_was_set = abs(skew_ms - self._skew_ms) >= CLOCK_JUMP_MS
        if clock_was_set:
            self._skew_ms = skew_ms
        changed = self._load.observe() or clock_was_set
        for led in self._serving():
            led.upkeep.follow_topics()
            if changed:
                led.upkeep.reschedule_all()

    def _skew_now_ms(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic() * 1000)

    def _serving(self) -> Sequence[LedShard]:
        return [led for led in self._shards.led_shards() if led.serving]
