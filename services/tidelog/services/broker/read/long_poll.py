"""Fetches that wait at the end of a partition for its next commit."""

from __future__ import annotations

import asyncio

from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.write.append_buffer import RETRY_AFTER_S
from tidelog.services.runtime.loop_turns import LoopTurns
from tidelog.storage.errors import Overloaded

WAITERS_MAX = 100_000
WOKEN_A_TURN = 32
"""A commit to a thousand partitions wakes a thousand fetches; each reads its records before the next one can."""


class LongPolls:
    """All waiting fetches of a broker, `waiters_max` at most. A client that leaves is waited for no longer."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._ended = False
        self._woken = LoopTurns(WOKEN_A_TURN)

    def __len__(self) -> int:
        return len(self._waiting)

    def shards(self) -> frozenset[int]:
        """Those at whose leaders polls wait."""
        return frozenset(self._waiting.values())

    async def wait(self, state: PartitionState, timeout_s: float) -> None:
        """Return at the next commit, after `timeout_s`, or when the broker stops. Raises `Overloaded`."""
        if self._ended:
            return
        if len(self._waiting) >= self._waiters_max:
            raise Overloaded(f"{self._waiters_max:,} fetches are waiting already", retry_after_s=RETRY_AFTER_S)
        commit = state.next_commit()
        self._waiting[commit] = state.shard
        try:
            async with asyncio.timeout(timeout_s):
                await commit
            await self._woken.take()
        except TimeoutError:
            return  # nothing came: an empty answer
        finally:
            del self._waiting[commit]
            commit.cancel()

    def end(self) -> None:
        """Let all of them go, with what there is."""
        self._ended = True
        for commit in tuple(self._waiting):
            if not commit.done():
                commit.set_result(None)
