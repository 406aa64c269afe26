"""Ends the polls that wait at a leader which another broker has replaced.

A poll that waits at the end of a log is woken by the next commit, which never comes at a leader that was replaced and
does not know it, since it is cut off from etcd. So while polls wait at a shard, its leadership is proved every
`PROVE_EVERY_S`: for nothing while the lease is certain, else by a check of the log, one for all polls of a shard.
"""

from __future__ import annotations

import asyncio
import logging

from tidelog.services.broker.read.long_poll import LongPolls
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.errors import Fenced, TidelogError, Unavailable
from tidelog.storage.runtime import Clock

PROVE_EVERY_S = 2.0

_log = logging.getLogger(__name__)


class PollWatch:
    """A `BackgroundLoop`. A leader that is found replaced steps down, which wakes its polls."""

    def __init__(self, polls: LongPolls, shards: ShardSet, clock: Clock) -> None:
        self._polls = polls
        self._shards = shards
        self._clock = clock
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop at once."""
        if self._loop:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(PROVE_EVERY_S)
            await asyncio.gather(*(self._prove(shard) for shard in self._polls.shards()))

    async def _prove(self, shard: int) -> None:
        try:
            await self._shards.prove_leading(self._shards.leading(shard))
        except (Fenced, Unavailable) as error:
            _log.debug("polls of shard %d are told when they end: %s", shard, error)
        except TidelogError as error:
            _log.warning("whether shard %d is led here still could not be found out: %s", shard, error)
