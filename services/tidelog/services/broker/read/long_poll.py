"""Fetches that wait at the end of their partitions for the next commit (long polls).

A poll of many partitions is one future, which the next commit of any of them completes, and one timer. Each partition
holds a reference to the future, so a poll of 1,000 partitions costs little more memory than a poll of one.

Hazard: a poll ends at the next commit, or after its timeout. A leader that another broker has replaced makes no further
commit, and does not know that it was replaced while it is cut off from etcd. Defence: while polls wait at a shard,
`PollWatch` proves its leadership every `PROVE_EVERY_S`: without a request while the lease is certain, otherwise by one
check of the log per shard. A leader that is found replaced steps down, which wakes its polls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tidelog.services.broker.shard.append_buffer import RETRY_AFTER_S
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Fenced, Overloaded, TidelogError, Unavailable
from tidelog.storage.loop_turns import LoopTurns
from tidelog.storage.runtime import Runtime

WAITERS_MAX = 100_000
WOKEN_A_TURN = 32
"""A commit to a thousand partitions wakes a thousand fetches, and each reads its records before the next one can."""
PROVE_EVERY_S = 2.0

_log = logging.getLogger(__name__)


class LongPolls:
    """All waiting fetches of a broker, at most `waiters_max`. A poll whose client disconnects ends."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self._waiting: dict[asyncio.Future[None], frozenset[int]] = {}
        self._ended = False
        self._woken = LoopTurns(WOKEN_A_TURN)

    def __len__(self) -> int:
        return len(self._waiting)

    def shards(self) -> frozenset[int]:
        return frozenset().union(*self._waiting.values())

    async def wait(self, states: Sequence[PartitionState], timeout_s: float) -> None:
        """Return at the next commit to any of `states`, after `timeout_s`, or when the broker stops. Raises
        `Overloaded`."""
        if self._ended:
            return
        if len(self._waiting) >= self._waiters_max:
            raise Overloaded(f"{self._waiters_max:,} fetches are waiting. Retry later", retry_after_s=RETRY_AFTER_S)
        commit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for state in states:
            state.add_waiter(commit)
        self._waiting[commit] = frozenset(state.shard for state in states)
        try:
            async with asyncio.timeout(timeout_s):
                await commit
            await self._woken.take()
        except TimeoutError:
            return  # the answer is empty
        finally:
            del self._waiting[commit]
            for state in states:
                state.remove_waiter(commit)

    def end(self) -> None:
        """End all polls with the records that there are; no poll waits from now on."""
        self._ended = True
        for commit in tuple(self._waiting):
            if not commit.done():
                commit.set_result(None)


class PollWatch(BackgroundLoop):
    """Proves the leadership of the shards at which `polls` wait."""

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
