"""A shard that this broker leads: its leader, the archiver of its log, and how both end together.

Letting go comes in an order that hurts nobody: refuse what is new, stop archiving between two requests to the store,
commit and answer what was taken, close. A pass of the archiver that was cut off is taken up by the next leader's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from tidelog.services.broker.shard_leader import ShardLeader
from tidelog.storage.archiver import Archiver

_log = logging.getLogger(__name__)


class LedShard:
    """Of use until `release` or `close`."""

    def __init__(self, leader: ShardLeader, archiver: Archiver) -> None:
        self.shard = leader.shard
        self.leader = leader
        self._archiver = archiver
        self._letting_go = False
        self._work: asyncio.Task[None] | None = None

    @property
    def serving(self) -> bool:
        """Whether it takes requests."""
        return not self._letting_go and self.leader.down is None

    # ---- archiving

    async def archive(self, end: int) -> None:
        """One pass over the committed entries below `end`; the partitions' states go over to what it made. Raises
        `Unavailable`, `Corrupt`."""
        await self._unless_let_go(self._archive(end))

    async def collect(self) -> int:
        """Delete the entries whose grace is over. Returns how many. Raises `Unavailable`."""
        deleted = await self._archiver.collect() if self.serving else 0
        self.leader.extent.deleted(self._archiver.collected)
        return deleted

    async def _archive(self, end: int) -> None:
        report = await self._archiver.run_once(end)
        if report:
            self.leader.archived(report.manifests, report.floor)
            await self.leader.partitions.refresh_behind(report.floor)

    async def _unless_let_go(self, work: Coroutine[None, None, None]) -> None:
        """`work`, which `_stop_archiving` may cut off; that is no error of whoever began it."""
        if not self.serving:
            work.close()
            return
        self._work = asyncio.create_task(work)
        try:
            await asyncio.wait((self._work,))
        finally:
            self._work.cancel()
        if not self._work.cancelled():
            self._work.result()

    async def _stop_archiving(self) -> None:
        if self._work:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    # ---- the end

    async def release(self, drain_s: float) -> None:
        """Refuse what is new, commit and answer what was taken within `drain_s`, then stop."""
        self._letting_go = True
        self.leader.partitions.wake_all()  # long polls go on at the next leader
        await self._stop_archiving()
        try:
            async with asyncio.timeout(drain_s):
                await self.leader.drain()
        except TimeoutError:
            _log.warning("shard %d was let go with records whose commit was not confirmed in time", self.shard)
        await self.leader.close()

    async def close(self, *, fenced: bool = False) -> None:
        """Stop at once."""
        self._letting_go = True
        await self._stop_archiving()
        await self.leader.close(fenced=fenced)
