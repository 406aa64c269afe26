"""A call on one partition, made where its shard is led: here or at a peer, tried again while the shard moves.

    refused with NotLeader, LeaderUnknown     nothing was taken             again
    a read that broke off, or whose leader    it changes nothing, or only   again
    is another one by now, or was replaced    once (delete-records)
    a produce that broke off                  the outcome is unknown        raised to its producer
    a produce whose leader is another one     it may be committed yet       a moment more, then raised as unknown
    by now and which is not answered

So a paused leader holds up its producers no longer than it takes for another to lead, and its readers not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.services.broker.shard.shard_set import RETRY_AFTER_S
from tidelog.storage.errors import LeaderUnknown, NotLeader, Overloaded, Unavailable
from tidelog.storage.runtime import Clock

T = TypeVar("T")

PAUSE_S_FIRST = 0.01
PAUSE_S_MAX = 0.2
"""A leader is named before it takes requests, and only it knows when it does; so besides waiting for a change a call is
tried again after a while."""

CUT_OFF_PATIENCE_S = 1.0
"""How long a call looks for a leader where no news of one can come, since etcd is not reached: another broker may
know."""

ANSWER_GRACE_S = 1.0
"""How long a produce goes on waiting for the answer of a leader that was replaced."""


class LeaderCalls:
    """`timeout_s`: how long one call looks for a leader that takes it. Counts the calls sent to peers."""

    def __init__(self, leader_router: LeaderRouter, clock: Clock, timeout_s: float) -> None:
        self._router = leader_router
        self._clock = clock
        self._timeout_s = timeout_s
        self.forwarded = 0

    async def read(
        self,
        context: RequestContext,
        shard: int,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Leader], Awaitable[T]],
        *,
        wait_s: float = 0.0,
    ) -> T:
        """The answer of whoever leads `shard`, for a call that may wait `wait_s` there. Raises what the call does, and
        `LeaderUnknown` or `NotLeader` if nobody took it in time."""
        pauses = self._pauses(context, self._timeout_s + wait_s)
        while True:
            try:
                return await self._once(shard, here, there, leaving_s=0.0)
            except (NotLeader, LeaderUnknown) as refusal:
                await pauses.again_or_raise(refusal)
            except Overloaded:
                raise
            except Unavailable as broken:
                if self._router.route(shard).local:
                    raise
                await pauses.again_or_raise(broken)

    async def write(
        self,
        context: RequestContext,
        shard: int,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Leader], Awaitable[T]],
    ) -> T:
        """As `read`, for a call that takes something: what may have been taken is not sent again."""
        pauses = self._pauses(context, self._timeout_s)
        while True:
            try:
                return await self._once(shard, here, there, leaving_s=ANSWER_GRACE_S)
            except (NotLeader, LeaderUnknown) as refusal:
                await pauses.again_or_raise(refusal)

    def _pauses(self, context: RequestContext, timeout_s: float) -> _Pauses:
        return _Pauses(self._router, self._clock, context.bounded_s(timeout_s, self._clock.monotonic()))

    async def _once(
        self,
        shard: int,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Leader], Awaitable[T]],
        *,
        leaving_s: float,
    ) -> T:
        route = self._router.route(shard)
        if route.local:
            return await here()
        if route.leader is None:
            raise LeaderUnknown(
                f"shard {shard} has no leader at this moment; nothing was taken, send it again",
                retry_after_s=RETRY_AFTER_S,
            )
        self.forwarded += 1
        return await self._while_leading(shard, route.leader, asyncio.ensure_future(there(route.leader)), leaving_s)

    async def _while_leading(self, shard: int, leader: Leader, call: asyncio.Future[T], leaving_s: float) -> T:
        """What `call` answers; after `leader` was replaced it has `leaving_s` more."""
        moved = self._router.moved(shard, leader)
        try:
            await asyncio.wait((call, moved), return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and leaving_s:
                await asyncio.wait((call,), timeout=leaving_s)
            if call.done():
                return call.result()
        finally:
            moved.cancel()
            if not call.done():
                call.cancel()
                await asyncio.wait((call,))
        message = f"{leader.broker_id} does not lead shard {shard} any more and did not answer"
        if leaving_s:
            raise Unavailable(f"{message}: the outcome is unknown; a retry may repeat the records")
        raise LeaderUnknown(message, retry_after_s=RETRY_AFTER_S)


class _Pauses:
    """The pauses between the tries of one call, growing, and their end."""

    def __init__(self, leader_router: LeaderRouter, clock: Clock, timeout_s: float) -> None:
        self._router = leader_router
        self._clock = clock
        began_s = clock.monotonic()
        self._end_s = began_s + timeout_s
        self._end_cut_off_s = began_s + min(timeout_s, CUT_OFF_PATIENCE_S)
        self._pause_s = PAUSE_S_FIRST

    async def again_or_raise(self, error: Unavailable) -> None:
        """Return when it is time to try again; raise `error` if there is no time left."""
        end_s = self._end_s if self._router.current else self._end_cut_off_s
        left_s = end_s - self._clock.monotonic()
        if left_s <= 0 or self._router.closed:
            raise error
        await self._router.changed(min(left_s, self._pause_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
