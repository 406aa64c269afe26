"""A shard that this broker leads: its leader, the archiver of its log, the upkeep of its segments, and how they end
together.

Letting go comes in an order that hurts nobody: refuse what is new, stop archiving and upkeep between two requests to
the store, commit and answer what was taken, close. What was cut off is taken up by the next leader's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.archive.damages import Damage
from tidelog.services.broker.archive.shard_upkeep import ShardUpkeep
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.storage.archiver import Archiver
from tidelog.storage.errors import Corrupt, RecordsLost
from tidelog.storage.layout import TopicPartition

_log = logging.getLogger(__name__)


class LedShard:
    """Of use until `release` or `close`."""

    def __init__(self, leader: ShardLeader, archiver: Archiver, upkeep: ShardUpkeep) -> None:
        self.shard = leader.shard
        self.leader = leader
        self.upkeep = upkeep
        self._archiver = archiver
        self._letting_go = False
        self._passed = False
        self._works: set[asyncio.Task[None]] = set()

    @property
    def serving(self) -> bool:
        """Whether it takes requests."""
        return not self._letting_go and self.leader.down is None

    # ---- archiving

    async def archive(self, end: int) -> None:
        """One pass over the committed entries below `end`; the partitions' states go over to what it made. Damaged
        objects are told by `damages`. Raises `Unavailable`, and `Corrupt` if the floor is damaged."""
        await self.while_it_lasts(self._archive(end))

    @property
    def archived_to(self) -> int:
        """Entries below it are archived, but for what is damaged."""
        return self.leader.extent.archived_to

    @property
    def begins_again(self) -> bool:
        """Whether something was mended, so that entries are gone over once more."""
        return self._passed and self._archiver.position < self.archived_to

    @property
    def look_again_at_s(self) -> float:
        """When a pass is to look whether what is damaged was mended, by the monotonic clock."""
        return self._archiver.damage.look_again_at_s

    def faults(self) -> Sequence[Corrupt]:
        """Why archiving has left something out, the entries first."""
        damage = self._archiver.damage
        entries = [lost.fault for lost in damage.entries.values()]
        return entries + [stuck.fault for stuck in damage.partitions.values()]

    def fault_of(self, place: TopicPartition) -> Corrupt | None:
        """Why archiving may have left out something of a partition."""
        stuck = self._archiver.damage.partitions.get(place)
        lost = next(iter(self._archiver.damage.entries.values()), None)
        return lost.fault if lost else stuck.fault if stuck else None

    def damages(self) -> Sequence[Damage]:
        """What archiving has found damaged."""
        damage = self._archiver.damage
        held = f"The log of shard {self.shard} is kept from entry {self._archiver.floor} on until it is mended"
        gaps_explained = bool(damage.entries)
        lost = [
            Damage(entry.fault.name, entry.fault.reason, f"Its records cannot be read. {held}", self.shard)
            for entry in damage.entries.values()
        ]
        return lost + [
            Damage(
                *(stuck.fault.name, stuck.fault.reason, f"Nothing of the partition is archived. {held}"),
                *(self.shard, stuck.topic, stuck.place.partition),
            )
            for stuck in damage.partitions.values()
            if not (gaps_explained and isinstance(stuck.fault, RecordsLost))
        ]

    async def collect(self) -> int:
        """Delete the entries whose grace is over. Returns how many. Raises `Unavailable`."""
        deleted = await self._archiver.collect() if self.serving else 0
        self.leader.extent.deleted(self._archiver.collected)
        return deleted

    async def _archive(self, end: int) -> None:
        before = self.leader.extent.floor
        try:
            await self._archiver.run_once(end)
        finally:  # what it had appended before it failed is in the log as well
            self._passed = True
            floor = max(before, self._archiver.floor)
            self.leader.archived(self._archiver.made, floor, self._archiver.position)
            if self._archiver.damage.entries:
                self.leader.keep_headers()
            self.upkeep.archived(self._archiver.made)
        if floor > before:  # by this pass, or by one whose last answer was lost
            await self.leader.partitions.refresh_behind(floor)

    # ---- upkeep

    async def tend(self) -> None:
        """One step of upkeep. Raises `Conflict`, `Unavailable`, `Corrupt`."""
        await self.while_it_lasts(self.upkeep.step())

    async def look(self) -> None:
        """Find out of one more partition when it is due. Raises `Unavailable`, `Corrupt`."""
        await self.while_it_lasts(self.upkeep.look())

    async def delete_records(self, topic: Topic, number: int, before_offset: int) -> None:
        """Begin the log of a partition at `before_offset`, which is cold. Raises `Conflict`, `Unavailable`."""
        await self.while_it_lasts(self.upkeep.delete_records(topic, number, before_offset))

    # ---- both, and what else a leader does

    async def while_it_lasts(self, work: Coroutine[None, None, None]) -> None:
        """`work`, which is cut off when the shard is let go; that is no error of whoever began it."""
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

    # ---- the end

    async def release(self, drain_s: float) -> None:
        """Refuse what is new, commit and answer what was taken within `drain_s`, then stop."""
        self._letting_go = True
        self.leader.partitions.wake_all()  # long polls go on at the next leader
        await self._stop_works()
        try:
            async with asyncio.timeout(drain_s):
                await self.leader.drain()
        except TimeoutError:
            _log.warning("shard %d was let go with records whose commit was not confirmed in time", self.shard)
        await self.leader.close()

    async def close(self, *, fenced: bool = False) -> None:
        """Stop at once."""
        self._letting_go = True
        await self._stop_works()
        await self.leader.close(fenced=fenced)
