"""Ends the long polls at a leader that another broker has replaced.

A poll at the end of a log waits for the next commit. A replaced leader that is cut off from etcd does not know that it
was replaced, and makes no further commit. So while polls wait at a shard, its leadership is proved every
`PROVE_EVERY_S`: without a request while the lease is certain, otherwise by one check of the log per shard.
"""

from __future__ import annotations

import asyncio
import logging

from tidelog.services.broker.read.long_poll import LongPolls
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Fenced, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

PROVE_EVERY_S = 2.0

_log = logging.getLogger(__name__)


class PollWatch(BackgroundLoop):
    """A leader that is found replaced steps down, which wakes its polls."""

    def __init__(self, polls: LongPolls, shards: ShardSet, runtime: Runtime) -> None:
        super().__init__("the proof of leadership for waiting polls", runtime)
        self._polls = polls
        self._shards = shards

    async def step(self) -> float:
        await asyncio.gather(*(self._prove(shard) for shard in self._polls.shards()))
        return PROVE_EVERY_S

    async def _prove(self, shard: int) -> None:
        try:
            await self._shards.prove_leading(self._shards.leading(shard))
        except (Fenced, Unavailable) as error:
            _log.debug("polls of shard %d get this error when they end: %s", shard, error)
        except TidelogError as error:
            _log.warning("cannot prove that this broker still leads shard %d: %s", shard, error)
