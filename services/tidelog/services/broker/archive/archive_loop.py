"""The loop that turns a shard's WAL into segments, behind everybody's back.

A shard's WAL is archived once it is large or old enough, and at most one shard's at a time, since a pass takes memory
and a processor. While producers wait for a shard's commits its WAL may grow to `BURST_FACTOR` times as much: a pass
takes processor time and requests that a burst has better use for. Archiving stands behind requests (`background`) until
a WAL holds `BEHIND_FACTOR` times `bytes_min`: from there on it takes its share of the processor, and upkeep waits. A
commit costs one PUT for any number of partitions, a pass two for each of them; so a WAL that is only old waits, within
bounds, until a pass costs no more PUTs than its entries have cost (docs/adr/0014-archiving-pays.md). What a pass has
appended to manifests goes into the partitions' states in one step each, so that a reader sees a partition before or
after, never between (inv. 5). Entries that the floor has passed are deleted after the grace (inv. 6). The store being
away only delays all this: a pass is restart-safe and simply runs again.

Damage of one object stops only what that object holds: the archiver goes on with the rest (`storage.archiver`), other
shards are archived and collected, and `Damages` says which object it is. While a shard's archiving is damaged its floor
stays, so its WAL grows; the damage is looked at again every half minute. If the floor itself is damaged, the shard's
whole pass fails and is tried again after `PAUSE_AFTER_ERROR_S`.

The archiver takes a topic that the journal does not have for deleted, and passes its records over. So before each pass
the journal is read on: whatever topic has records below the end of the pass was in it before they were written.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from tidelog.coordinator.journal import Journal
from tidelog.services.broker.archive.background import BackgroundThreads
from tidelog.services.broker.archive.damages import Damage, Damages
from tidelog.services.broker.archive.topic_remover import TopicRemover
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.errors import Corrupt, TidelogError
from tidelog.storage.layout import TopicPartition
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 0.5
PAUSE_AFTER_ERROR_S = 5.0
COLLECT_EVERY_S = 60.0

BURST_FACTOR = 4
"""How many times `bytes_min` a WAL may hold before it is archived under load."""

BEHIND_FACTOR = 8
"""How many times `bytes_min`, or `entries_max`, a WAL may hold before archiving has fallen behind."""

PATIENCE = 10
"""How many times `interval_ms` a WAL may be old while a pass would cost more than its entries have."""

PUTS_FREE = 16
"""A pass of so few is not put off: of few partitions records are archived after `interval_ms`."""

PUTS_A_PARTITION = 2
"""A segment and a manifest. The floor's, one a pass, is left out."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WalDebt:
    """What of a WAL is not archived: entries, their bytes, the partitions that they are of, and how long ago the oldest
    was written."""

    entries: int
    bytes: int
    partitions: int
    age_ms: int


@dataclass(frozen=True)
class ArchivePolicy:
    """When a WAL is archived: larger than `bytes_min`, of `entries_max` entries, each of which costs a read when a
    broker opens, or older than `interval_ms`, if that pays."""

    interval_ms: int
    bytes_min: int
    entries_max: int = 4_000

    def is_due(self, debt: WalDebt, *, busy: bool = False) -> bool:
        """Pure. `busy` tells that producers wait for the WAL."""
        bytes_max = self.bytes_min * BURST_FACTOR if busy else self.bytes_min
        full = debt.bytes >= bytes_max or debt.entries >= self.entries_max
        return debt.entries > 0 and (full or (self.is_old(debt.age_ms) and self._pays(debt)))

    def is_behind(self, entries: int, wal_bytes: int) -> bool:
        """Whether so much is left over that archiving must not give way any longer."""
        return wal_bytes >= self.bytes_min * BEHIND_FACTOR or entries >= self.entries_max * BEHIND_FACTOR

    def is_old(self, age_ms: int) -> bool:
        """Whether a WAL of that age is due unless it is put off."""
        return age_ms >= self.interval_ms

    def _pays(self, debt: WalDebt) -> bool:
        """Whether a pass costs no more PUTs than the entries, or must not wait for longer."""
        puts = PUTS_A_PARTITION * debt.partitions
        return puts <= max(debt.entries, PUTS_FREE) or debt.age_ms >= PATIENCE * self.interval_ms


class ArchiveLoop:
    """Runs from `start` to `close`, over the shards that are led at each time."""

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
        self._shards = shards
        self._threads = threads
        self._damages = damages
        self._paused_until_s: dict[int, float] = {}
        self._journal = journal
        self._remover = remover
        self._policy = policy
        self._runtime = runtime
        self._one_pass = asyncio.Lock()
        self._loop: asyncio.Task[None] | None = None

    @property
    def behind(self) -> bool:
        """Whether a shard has fallen behind."""
        extents = [led.leader.extent for led in self._shards.led_shards()]
        return any(self._policy.is_behind(len(extent), extent.bytes) for extent in extents)

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop between any two object operations; the next broker goes on."""
        if self._loop:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def archive_due(self) -> int:
        """Archive the shards that are due, once each. Returns how many were. Raises `Unavailable`."""
        due = [led for led in self._shards.led_shards() if self._is_due(led)]
        for led in due:
            try:
                await self._archive(led)
            except Corrupt:
                self._paused_until_s[led.shard] = self._runtime.clock.monotonic() + PAUSE_AFTER_ERROR_S
        return len(due)

    async def archive_all(self) -> None:
        """Archive all that is committed now, whatever its age. Raises `Corrupt` once all is archived that can be."""
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
        """Archive all that is committed now in a shard that is led here; returns why something of the partition may be
        left out. Raises `Unavailable`, and `Corrupt` if the floor is damaged."""
        led = self._shards.led_shard(shard)
        await self._archive_to_the_end(led)
        return led.fault_of(place)

    async def _run(self) -> None:
        collect_at_s = self._runtime.clock.monotonic()
        while True:
            pause_s = CHECK_EVERY_S
            try:
                if await self.archive_due():
                    pause_s = 0.0  # a backlog is worked off without a pause
                if await self.remove_deleted():
                    pause_s = 0.0
                if self._runtime.clock.monotonic() >= collect_at_s:
                    collect_at_s = self._runtime.clock.monotonic() + COLLECT_EVERY_S
                    await self.collect()
            except TidelogError as error:
                _log.warning("archiving goes on in %.0f s: %s", PAUSE_AFTER_ERROR_S, error)
                pause_s = PAUSE_AFTER_ERROR_S
            except Exception:
                _log.exception("archiving failed by a defect; it goes on in %.0f s", PAUSE_AFTER_ERROR_S)
                pause_s = PAUSE_AFTER_ERROR_S
            await self._runtime.clock.sleep(pause_s)

    async def remove_deleted(self) -> bool:
        """Remove some objects of deleted topics whose grace is over; whether there are more."""
        async with self._one_pass:  # a pass could write one still
            return await self._remover.remove_deleted(self._shards.leads)

    async def collect(self) -> int:
        """Delete the entries whose grace is over. Returns how many. A shard whose floor is damaged is left out."""
        deleted = 0
        for led in self._shards.led_shards():
            try:
                deleted += await led.collect()
            except Corrupt as fault:
                self._damages.found(f"collection of shard {led.shard}", [_of_shard(fault, led.shard)])
            else:
                self._damages.found(f"collection of shard {led.shard}", ())
        return deleted

    async def _archive_to_the_end(self, led: LedShard) -> None:
        end = led.leader.next_seq
        if led.faults():
            await self._archive(led)  # the floor may have passed what was lost
        while led.serving and (led.archived_to < end or led.begins_again):
            await self._archive(led)

    async def _archive(self, led: LedShard) -> None:
        async with self._one_pass:
            self._threads.hurried = self.behind
            end = led.leader.next_seq  # fixed before the journal is read on
            await self._journal.catch_up()
            try:
                await led.archive(end)
            except Corrupt as fault:
                self._damages.found(f"archiving of shard {led.shard}", [_of_shard(fault, led.shard)])
                raise
            self._damages.found(f"archiving of shard {led.shard}", led.damages())

    def _is_due(self, led: LedShard) -> bool:
        extent, now_s = led.leader.extent, self._runtime.clock.monotonic()
        if not led.serving or now_s < self._paused_until_s.get(led.shard, now_s):
            return False
        if led.begins_again or now_s >= led.look_again_at_s:
            return True
        if extent.oldest_at_ms is None:
            return False
        age_ms = self._runtime.clock.now_ms() - extent.oldest_at_ms
        # to count them takes a millisecond for ten thousand, and nothing else depends on it
        partitions = led.leader.partitions.unarchived() if self._policy.is_old(age_ms) else 0
        debt = WalDebt(len(extent), extent.bytes, partitions, age_ms)
        return self._policy.is_due(debt, busy=led.leader.buffered_bytes > 0)


def _of_shard(fault: Corrupt, shard: int) -> Damage:
    """A fault that stops a shard's archiving altogether."""
    return Damage(fault.name, fault.reason, f"Nothing of shard {shard} is archived", shard)
