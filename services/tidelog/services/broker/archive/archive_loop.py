"""Archives the WALs of the shards that this broker leads.

- **When.** `ArchivePolicy` decides by size, number of entries, age, and the debt of all shards together.
- **Side by side.** Passes of different shards run at the same time, at most `PASSES_AT_ONCE_MAX`, because each holds
  `archiver.batch.bytes` twice in memory. Of two shards that are due, the one with more bytes goes first.
- **Priority.** Passes run on threads of low priority (`BackgroundThreads`) until archiving has fallen behind. From then
  on they get their share of the processors, and upkeep waits. If that does not suffice, producers are slowed
  (`shard.debt_brake`).
- **Consistency.** After a pass each partition's state changes in one step, so a reader sees it before or after the pass
  (inv. 5). A pass can be repeated after any failure.
- **Damage.** An object that is damaged, or that a later version of Tidelog wrote, stops only what it holds: the
  archiver continues with the rest, and `Damages` names the object. The floor of that shard stays; the damage is checked
  again every half minute. If the newest manifest of a shard cannot be read, its passes fail and are tried again as
  often. The other shards go on, and its log counts alone for the brake (`debt_brake.HeldLog`).

Hazard: the archiver treats a topic that is not in the journal as deleted and skips its records.
Defence: before each pass the journal is read up to its end. A topic is in the journal before its first record is
written, so every topic below the end of the pass is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidelog.coordinator.journal import Journal
from tidelog.services.broker.archive.archive_policy import ArchivePolicy, WalDebt
from tidelog.services.broker.archive.background_threads import BackgroundThreads
from tidelog.services.broker.archive.side_by_side import SideBySide
from tidelog.services.broker.shard.debt_brake import DebtBrake
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.telemetry.damages import Damages, damage_of
from tidelog.storage.archive.archive_damage import LOOK_AGAIN_S
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.layout import TopicPartition
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 0.5
PAUSE_AFTER_ERROR_S = 5.0
PASSES_AT_ONCE_MAX = 2
"""More would take more memory; a pass over several topics uses several processors."""


class ArchiveLoop(BackgroundLoop):
    """Archives the shards that are led at each moment."""

    def __init__(
        self,
        shards: ShardSet,
        journal: Journal,
        policy: ArchivePolicy,
        brake: DebtBrake,
        runtime: Runtime,
        threads: BackgroundThreads,
        damages: Damages,
    ) -> None:
        super().__init__("archiving", runtime)
        self._shards = shards
        self._journal = journal
        self._policy = policy
        self._brake = brake
        self._threads = threads
        self._damages = damages
        at_once = min(threads.count, PASSES_AT_ONCE_MAX)
        self._passes: SideBySide[int] = SideBySide("archiving of shard", self._clock, at_once=at_once, pause_s=_pause_s)

    @property
    def behind(self) -> bool:
        """Whether archiving has fallen behind, so that it must not wait for producers any longer."""
        entries_most = max((len(led.leader.extent) for led in self._shards.led_shards() if not led.fault), default=0)
        return self._policy.is_behind(entries_most, self._shards.debt_bytes())

    @property
    def busy(self) -> bool:
        """Whether a pass is running, or producers wait for commits."""
        return len(self._passes) > 0 or self._shards.producers_wait

    async def step(self) -> float:
        """Begin the passes that are due. A backlog is worked off without a pause."""
        self._brake.observe()
        self._threads.hurried = self.behind
        self.begin_due()
        if not len(self._passes):
            return CHECK_EVERY_S
        await self._passes.one_ended(CHECK_EVERY_S)
        return 0.0

    def begin_due(self) -> Sequence[int]:
        """Begin passes of the shards that are due, as many as have room. Returns their shards."""
        due = sorted(filter(self._is_due, self._shards.led_shards()), key=lambda led: -led.leader.extent.bytes)
        begun = due[: self._passes.at_once - len(self._passes)]
        for led in begun:
            self._passes.begin(led.shard, partial(self._archive, led))
        return [led.shard for led in begun]

    async def all_ended(self) -> None:
        """Return when no pass is running that this loop began."""
        await self._passes.all_ended()

    async def close(self) -> None:
        await super().close()
        await self._passes.close()

    async def archive_all(self) -> None:
        """Archive everything that is committed now. Raises `Corrupt` or `NewerFormat` after everything that can be
        read is archived."""
        faults: list[Corrupt | NewerFormat | None] = []
        for led in self._shards.led_shards():
            try:
                await self._archive_to_the_end(led)
                faults.append(led.fault)
            except (Corrupt, NewerFormat) as fault:
                faults.append(fault)
        for found in filter(None, faults):
            raise found

    async def archive_partition(self, shard: int, place: TopicPartition) -> Corrupt | NewerFormat | None:
        """Archive everything that is committed now in a shard that is led here. Returns why something of the partition
        may not be archived. Raises `Unavailable`, and `Corrupt` if the newest manifest is damaged."""
        led = self._shards.led_shard(shard)
        await self._archive_to_the_end(led)
        return led.fault_of(place)

    async def _archive_to_the_end(self, led: LedShard) -> None:
        end = led.leader.next_seq
        if led.fault:
            await self._archive(led)  # the floor may have passed the lost entries
        while led.serving and (led.archived_to < end or led.starts_over):
            await self._archive(led)

    async def _archive(self, led: LedShard) -> None:
        self._threads.hurried = self.behind
        end = led.leader.next_seq  # fixed before the journal is read
        await self._journal.catch_up()
        try:
            await led.archive(end)
        except (Corrupt, NewerFormat) as fault:
            effect = f"Nothing of shard {led.shard} is archived"
            self._damages.replace(_finder(led), [damage_of(fault, effect, led.shard)])
            raise
        self._damages.replace(_finder(led), led.damages())
        self._brake.observe()

    def _is_due(self, led: LedShard) -> bool:
        extent, now_s = led.leader.extent, self._clock.monotonic()
        if not led.serving or not self._passes.may_begin(led.shard):
            return False
        if led.starts_over or now_s >= led.recheck_at_s:
            return True
        if extent.oldest_at_ms is None:
            return False
        age_ms = self._clock.now_ms() - extent.oldest_at_ms
        debt = WalDebt(len(extent), extent.bytes, extent.topics, age_ms)
        return self._policy.is_due(debt, self._shards.debt_bytes())


def _pause_s(error: Exception) -> float:
    """How long a shard waits for its next pass after one that failed."""
    return LOOK_AGAIN_S if isinstance(error, (Corrupt, NewerFormat)) else PAUSE_AFTER_ERROR_S


def _finder(led: LedShard) -> str:
    return f"archiving of shard {led.shard}"
