"""Archives the WALs of the shards that this broker leads, and deletes what archiving has made unnecessary.

- **When.** `ArchivePolicy` decides by size, number of entries and age. One shard is archived at a time, because a pass
  takes memory and a processor. While producers wait for commits, a WAL may grow to `BURST_FACTOR` times its limit.
- **Cost.** A commit takes one PUT for any number of partitions; a pass takes two per partition. So a WAL that is only
  old waits, within bounds, until a pass costs no more PUTs than its entries did (docs/adr/0014-archiving-pays.md).
- **Priority.** Passes run on threads of low priority (`BackgroundThreads`) until archiving has fallen behind
  (`BEHIND_FACTOR`). From then on they get their share of the processor, and upkeep waits.
- **Consistency.** After a pass each partition's state changes in one step, so a reader sees it before or after the pass
  (inv. 5). Entries below the floor are deleted after the grace (inv. 6). A pass can be repeated after any failure.
- **Damage.** A damaged object stops only what it holds: the archiver continues with the rest, and `Damages` names the
  object. The floor of that shard stays, so its WAL grows; the damage is checked again every half minute. If the floor
  itself is damaged, the shard's pass fails and is tried again after `PAUSE_AFTER_ERROR_S`.

Hazard: the archiver treats a topic that is not in the journal as deleted and skips its records.
Defence: before each pass the journal is read up to its end. A topic is in the journal before its first record is
written, so every topic below the end of the pass is known.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog.coordinator.journal import Journal
from tidelog.services.broker.api.cluster import Damage
from tidelog.services.broker.archive.background_threads import BackgroundThreads
from tidelog.services.broker.archive.topic_remover import TopicRemover
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.telemetry.damages import Damages
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 0.5
PAUSE_AFTER_ERROR_S = 5.0
COLLECT_EVERY_S = 60.0

BURST_FACTOR = 4
"""Under load a WAL is archived at this multiple of `bytes_min`."""

BEHIND_FACTOR = 8
"""Archiving has fallen behind at this multiple of `bytes_min` or `entries_max`."""

PATIENCE = 10
"""A WAL is archived at this multiple of `interval_ms` although the pass costs more PUTs than its entries did."""

PUTS_FREE = 16
"""A pass of so few PUTs is never put off: records of few partitions are archived after `interval_ms`."""

PUTS_A_PARTITION = 2
"""A segment and a manifest. The PUT of the floor, one a pass, is not counted."""


@dataclass(frozen=True)
class WalDebt:
    """The part of a WAL that is not archived: its entries, bytes and partitions, and the age of its oldest entry."""

    entries: int
    bytes: int
    partitions: int
    age_ms: int


@dataclass(frozen=True)
class ArchivePolicy:
    """Archive a WAL at `bytes_min`, at `entries_max` entries (each costs a read when a broker opens the log), or at the
    age of `interval_ms` if the pass is worth its PUTs."""

    interval_ms: int
    bytes_min: int
    entries_max: int = 4_000

    def is_due(self, debt: WalDebt, *, busy: bool = False) -> bool:
        """Pure. `busy`: producers wait for commits."""
        bytes_max = self.bytes_min * BURST_FACTOR if busy else self.bytes_min
        full = debt.bytes >= bytes_max or debt.entries >= self.entries_max
        return debt.entries > 0 and (full or (self.is_old(debt.age_ms) and self._is_worth_it(debt)))

    def is_behind(self, entries: int, wal_bytes: int) -> bool:
        """Whether so much is not archived that archiving must not run at low priority any longer."""
        return wal_bytes >= self.bytes_min * BEHIND_FACTOR or entries >= self.entries_max * BEHIND_FACTOR

    def is_old(self, age_ms: int) -> bool:
        """Whether a WAL of that age is due, unless it is put off."""
        return age_ms >= self.interval_ms

    def _is_worth_it(self, debt: WalDebt) -> bool:
        """Whether a pass costs no more PUTs than the entries did, or has waited long enough."""
        puts = PUTS_A_PARTITION * debt.partitions
        return puts <= max(debt.entries, PUTS_FREE) or debt.age_ms >= PATIENCE * self.interval_ms


class ArchiveLoop(BackgroundLoop):
    """Archives the shards that are led at each moment."""

    def __init__(
        self,
        shards: ShardSet,
        journal: Journal,
        remover: TopicRemover,
        policy: ArchivePolicy,
        runtime: Runtime,
        threads: BackgroundThreads,
        damages: Damages,
    ) -> None:
        super().__init__("archiving", runtime)
        self._shards = shards
        self._threads = threads
        self._damages = damages
        self._paused_until_s: dict[int, float] = {}
        self._journal = journal
        self._remover = remover
        self._policy = policy
        self._collect_at_s = runtime.clock.monotonic()
        self._one_pass = asyncio.Lock()

    @property
    def behind(self) -> bool:
        extents = [led.leader.extent for led in self._shards.led_shards()]
        return any(self._policy.is_behind(len(extent), extent.bytes) for extent in extents)

    async def step(self) -> float:
        """Archive, remove, collect. A backlog is worked off without a pause."""
        archived = await self.archive_due()
        removing = await self.remove_deleted()
        if self._clock.monotonic() >= self._collect_at_s:
            self._collect_at_s = self._clock.monotonic() + COLLECT_EVERY_S
            await self.collect()
        return 0.0 if archived or removing else CHECK_EVERY_S

    async def archive_due(self) -> int:
        """Archive the shards that are due, once each. Returns their number. Raises `Unavailable`."""
        due = [led for led in self._shards.led_shards() if self._is_due(led)]
        for led in due:
            try:
                await self._archive(led)
            except Corrupt:
                self._paused_until_s[led.shard] = self._clock.monotonic() + PAUSE_AFTER_ERROR_S
        return len(due)

    async def archive_all(self) -> None:
        """Archive everything that is committed now. Raises `Corrupt` after everything undamaged is archived."""
        faults: list[Corrupt] = []
        for led in self._shards.led_shards():
            try:
                await self._archive_to_the_end(led)
                faults += led.faults()
            except Corrupt as fault:
                faults.append(fault)
        if faults:
            raise faults[0]

    async def archive_partition(self, shard: int, place: TopicPartition) -> Corrupt | None:
        """Archive everything that is committed now in a shard that is led here. Returns why something of the partition
        may not be archived. Raises `Unavailable`, and `Corrupt` if the floor is damaged."""
        led = self._shards.led_shard(shard)
        await self._archive_to_the_end(led)
        return led.fault_of(place)

    async def remove_deleted(self) -> bool:
        """Delete some objects of deleted topics whose grace is over. Returns whether there are more."""
        async with self._one_pass:  # a pass under way could still write one
            return await self._remover.remove_deleted(self._shards.leads)

    async def collect(self) -> int:
        """Delete the entries whose grace is over. Returns their number. Skips a shard whose floor is damaged."""
        deleted = 0
        for led in self._shards.led_shards():
            try:
                deleted += await led.collect()
            except Corrupt as fault:
                self._damages.replace(f"collection of shard {led.shard}", [_of_shard(fault, led.shard)])
            else:
                self._damages.replace(f"collection of shard {led.shard}", ())
        return deleted

    async def _archive_to_the_end(self, led: LedShard) -> None:
        end = led.leader.next_seq
        if led.faults():
            await self._archive(led)  # the floor may have passed the lost entries
        while led.serving and (led.archived_to < end or led.starts_over):
            await self._archive(led)

    async def _archive(self, led: LedShard) -> None:
        async with self._one_pass:
            self._threads.hurried = self.behind
            end = led.leader.next_seq  # fixed before the journal is read
            await self._journal.catch_up()
            try:
                await led.archive(end)
            except Corrupt as fault:
                self._damages.replace(f"archiving of shard {led.shard}", [_of_shard(fault, led.shard)])
                raise
            self._damages.replace(f"archiving of shard {led.shard}", led.damages())

    def _is_due(self, led: LedShard) -> bool:
        extent, now_s = led.leader.extent, self._clock.monotonic()
        if not led.serving or now_s < self._paused_until_s.get(led.shard, now_s):
            return False
        if led.starts_over or now_s >= led.recheck_at_s:
            return True
        if extent.oldest_at_ms is None:
            return False
        age_ms = self._clock.now_ms() - extent.oldest_at_ms
        # Counting takes a millisecond for ten thousand partitions, and only an old WAL needs it.
        partitions = led.leader.partitions.unarchived() if self._policy.is_old(age_ms) else 0
        debt = WalDebt(len(extent), extent.bytes, partitions, age_ms)
        return self._policy.is_due(debt, busy=led.leader.buffered_bytes > 0)


def _of_shard(fault: Corrupt, shard: int) -> Damage:
    """A fault that stops the archiving of a whole shard."""
    return Damage(fault.name, fault.reason, f"Nothing of shard {shard} is archived", shard)
