"""The loop that turns a shard's WAL into segments, behind everybody's back.

A shard's WAL is archived once it is large or old enough, and at most one shard's at a time, since a pass takes memory
and a processor. While producers wait for a shard's commits its WAL may grow to `BURST_FACTOR` times as much: a pass
takes processor time and requests that a burst has better use for. What a pass has appended to manifests goes into the
partitions' states in one step each, so that a reader sees a partition before or after, never between (inv. 5). Entries
that the floor has passed are deleted after the grace (inv. 6). The store being away only delays all this: a pass is
restart-safe and simply runs again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.services.broker.shard_leader import ShardLeader
from tidelog.services.broker.topic_remover import TopicRemover
from tidelog.storage.archiver import Archiver
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

CHECK_EVERY_S = 0.5
PAUSE_AFTER_ERROR_S = 5.0
COLLECT_EVERY_S = 60.0

BURST_FACTOR = 4
"""How many times `bytes_min` a WAL may hold before it is archived under load."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArchivePolicy:
    """When a WAL is archived: older than `interval_ms`, larger than `bytes_min`, or of `entries_max` entries, each of
    which costs a read when a broker opens."""

    interval_ms: int
    bytes_min: int
    entries_max: int = 4_000

    def is_due(
        self, entries: int, wal_bytes: int, oldest_at_ms: int | None, now_ms: int, *, busy: bool = False
    ) -> bool:
        """Pure: for a WAL of `wal_bytes` whose oldest entry was written at `oldest_at_ms`; `busy` tells that producers
        wait for it."""
        if oldest_at_ms is None:
            return False
        bytes_max = self.bytes_min * BURST_FACTOR if busy else self.bytes_min
        full = wal_bytes >= bytes_max or entries >= self.entries_max
        return full or now_ms - oldest_at_ms >= self.interval_ms


@dataclass(frozen=True)
class ShardArchive:
    """A shard and the archiver of its WAL."""

    leader: ShardLeader
    archiver: Archiver


class Archivist:
    """Runs from `start` to `close`."""

    def __init__(
        self, shards: Sequence[ShardArchive], remover: TopicRemover, policy: ArchivePolicy, runtime: Runtime
    ) -> None:
        self._shards = shards
        self._remover = remover
        self._policy = policy
        self._runtime = runtime
        self._one_pass = asyncio.Lock()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop between any two object operations; the next broker goes on."""
        if self._loop:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def archive_due(self) -> int:
        """Archive the shards that are due, once each. Returns how many were."""
        due = [shard for shard in self._shards if self._is_due(shard.leader)]
        for shard in due:
            await self._archive(shard)
        return len(due)

    async def archive_all(self) -> None:
        """Archive all that is committed now, whatever its age."""
        for shard in self._shards:
            end = shard.leader.next_seq
            while shard.leader.down is None and shard.leader.extent.floor < end:
                await self._archive(shard)

    async def _run(self) -> None:
        collect_at_s = self._runtime.clock.monotonic()
        while True:
            pause_s = CHECK_EVERY_S
            try:
                if await self.archive_due():
                    pause_s = 0.0  # a backlog is worked off without a pause
                await self.remove_deleted()
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

    async def remove_deleted(self) -> None:
        """Remove the objects of deleted topics, while no pass is under way that could still write one."""
        async with self._one_pass:
            await self._remover.remove_deleted()

    async def collect(self) -> int:
        """Delete the entries whose grace is over. Returns how many."""
        return sum([await shard.archiver.collect() for shard in self._shards if shard.leader.down is None])

    async def _archive(self, shard: ShardArchive) -> None:
        """One pass over the committed entries of a shard; the partitions' states go over to what it made."""
        async with self._one_pass:
            report = await shard.archiver.run_once(shard.leader.next_seq)
            if report:
                shard.leader.archived(report.manifests, report.floor)
                await shard.leader.partitions.refresh_behind(report.floor)

    def _is_due(self, leader: ShardLeader) -> bool:
        extent = leader.extent
        return leader.down is None and self._policy.is_due(
            len(extent),
            extent.bytes,
            extent.oldest_at_ms,
            self._runtime.clock.now_ms(),
            busy=leader.buffered_bytes > 0,
        )
