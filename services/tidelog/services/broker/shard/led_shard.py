"""A shard that this broker leads: its leader, archiver and upkeep, and how they stop together.

To release a shard: (1) refuse new requests, (2) stop archiving and upkeep between two requests to the store, (3) commit
and answer the accepted records, (4) close. The next leader repeats work that was stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence

from tidelog.services.broker.api.cluster import Damage
from tidelog.services.broker.shard.debt_brake import HeldLog
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_upkeep import ShardUpkeep
from tidelog.services.broker.telemetry.damages import damage_of
from tidelog.storage.archive.archive_damage import Stuck
from tidelog.storage.archive.archiver import Archiver
from tidelog.storage.errors import Corrupt, NewerFormat, RecordsLost, TidelogError
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind

_log = logging.getLogger(__name__)


class LedShard:
    """Usable until `release` or `close`. `fault`: why the last pass of the archiver has skipped something, or could not
    begin."""

    def __init__(self, leader: ShardLeader, archiver: Archiver, upkeep: ShardUpkeep) -> None:
        self.shard = leader.shard
        self.leader = leader
        self.upkeep = upkeep
        self.fault: Corrupt | NewerFormat | None = None
        self._archiver = archiver
        self._one_pass = asyncio.Lock()
        self._releasing = False
        self._archived_once = False
        self._works: set[asyncio.Task[None]] = set()

    @property
    def serving(self) -> bool:
        return not self._releasing and self.leader.down is None

    @property
    def manifest(self) -> ShardManifest | None:
        """The newest version that passed through here; None before the first."""
        return self.leader.partitions.manifest

    async def archive(self, end: int) -> None:
        """Run one pass over the committed entries below `end` and apply its version. `damages` lists the damaged
        objects that it finds. Raises `Unavailable`, `Conflict` (another archiver was faster), and `Corrupt` or
        `NewerFormat` if the newest manifest cannot be read."""
        await self.while_it_lasts(self._archive(end))

    @property
    def archived_to(self) -> int:
        """Entries below it are archived, except what is damaged."""
        return self.leader.extent.archived_to

    @property
    def starts_over(self) -> bool:
        """Whether damage was repaired, so that entries have to be archived once more."""
        return self._archived_once and self._archiver.position < self.archived_to

    @property
    def recheck_at_s(self) -> float:
        """When a pass has to check whether damage was repaired, by the monotonic clock."""
        return self._archiver.damage.look_again_at_s

    @property
    def held_log(self) -> HeldLog | None:
        """The log that damage keeps from being archived or deleted; None if nothing is damaged."""
        extent = self.leader.extent
        return HeldLog(extent.bytes + extent.held_bytes, self.fault) if self.fault else None

    def fault_of(self, place: TopicPartition) -> Corrupt | NewerFormat | None:
        """Why archiving may have skipped something of a partition."""
        damage = self._archiver.damage
        lost = next(iter(damage.entries.values()), None)
        found = lost or damage.topics.get(place.topic_id) or damage.partitions.get(place)
        return found.fault if found else None

    def damages(self) -> Sequence[Damage]:
        damage = self._archiver.damage
        gaps_explained = bool(damage.entries)
        lost = [self._damage(stuck, "Its records cannot be read") for stuck in damage.entries.values()]
        topics = [self._damage(stuck, "Nothing of the topic is archived") for stuck in damage.topics.values()]
        partitions = [
            self._damage(stuck, "Nothing of the partition is archived", place.partition)
            for place, stuck in damage.partitions.items()
            if not (gaps_explained and isinstance(stuck.fault, RecordsLost))
        ]
        return [*lost, *topics, *partitions]

    def _damage(self, stuck: Stuck, effect: str, partition: int = -1) -> Damage:
        held = f"The log of shard {self.shard} is kept from entry {self._archiver.floor} on until it is repaired"
        return damage_of(stuck.fault, f"{effect}. {held}", self.shard, stuck.topic, partition)

    async def collect(self) -> int:
        """Delete the entries whose grace is over. Returns their number. Raises `Unavailable`."""
        deleted = await self._archiver.collect() if self.serving else 0
        self.leader.extent.deleted(self._archiver.collected)
        return deleted

    async def _archive(self, end: int) -> None:
        async with self._one_pass:
            try:
                report = await self._archiver.run_once(end)
                self.fault = self._archiver.damage.first_fault()
            except TidelogError as error:
                self.fault = error if isinstance(error, (Corrupt, NewerFormat)) else self.fault
                await self._adopt()  # a version may have been appended before the failure, or by another worker
                raise
            if report:
                topics = report.manifest.topics
                added = [(topics[topic_id].name, segment) for topic_id, segment in report.segments.items()]
                self.leader.measurements.wrote(ChangeKind.ARCHIVE, added)
            await self._adopt()

    async def _adopt(self) -> None:
        """Apply the newest version that this process knows, and what the archiver has found."""
        self._archived_once = True
        if self._archiver.damage.entries:
            self.leader.keep_headers()
        if manifest := self.leader.partitions.log.known:
            await self.apply(manifest)

    async def apply(self, manifest: ShardManifest) -> None:
        """Switch to a version of the shard's manifest, unless a newer one passed through before."""
        await self.leader.archived(manifest, self._archiver.position)
        self.upkeep.adopt(manifest)

    async def while_it_lasts(self, work: Coroutine[None, None, None]) -> None:
        """Run `work`, and cancel it when the shard is released, which is no error for the caller."""
        if not self.serving:
            work.close()
            return
        task = asyncio.create_task(work)
        self._works.add(task)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
            self._works.discard(task)
        if not task.cancelled():
            task.result()

    async def _stop_works(self) -> None:
        works = tuple(self._works)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def release(self, drain_s: float) -> None:
        """Refuse new requests, commit and answer the accepted ones within `drain_s`, then stop."""
        self._releasing = True
        self.leader.partitions.wake_all()  # long polls continue at the next leader
        await self._stop_works()
        try:
            async with asyncio.timeout(drain_s):
                await self.leader.drain()
        except TimeoutError:
            _log.warning("shard %d was released before the store confirmed the commit of all its records", self.shard)
        await self.leader.close()

    async def close(self, *, fenced: bool = False) -> None:
        self._releasing = True
        await self._stop_works()
        await self.leader.close(fenced=fenced)
