"""Makes a call on one partition where its shard is led, here or at a peer, and retries it while the shard moves.

    outcome                                            what it means               then
    refused with NotLeader or LeaderUnknown            nothing was applied         retry
    a read failed, or its leader was replaced          reads change nothing        retry
    a produce failed                                   the outcome is unknown      raise
    a produce is unanswered when its leader            it may still be             wait `ANSWER_GRACE_S`, then raise
    was replaced                                       committed                   that the outcome is unknown

delete-records counts as a read, because it can be repeated. So a paused leader delays producers only until another one
leads, and readers not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.services.broker.shard.shard_set import RETRY_AFTER_S, no_leader
from tidelog.storage.errors import LeaderUnknown, NotLeader, Overloaded, Unavailable
from tidelog.storage.runtime import Clock

T = TypeVar("T")

PAUSE_S_FIRST = 0.01
PAUSE_S_MAX = 0.2
"""A leader is announced before it accepts requests, without a second notification when it does. So a call is also
retried after a pause. The pauses grow, and begin anew when a shard gets another leader: the new one opens soon."""

CUT_OFF_PATIENCE_S = 1.0
"""How long a call looks for a leader while etcd is unreachable, so that the client can try another broker."""

ANSWER_GRACE_S = 1.0
"""How long a produce waits for the answer of a leader that was replaced."""


class LeaderCalls:
    """`timeout_s`: how long a call looks for a leader. `forwarded` counts the calls sent to peers."""

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
        """The answer of the leader of `shard` to a call that may wait `wait_s` there. Raises like the call, and
        `LeaderUnknown` or `NotLeader` if no leader accepted it in time."""
        pauses = self.pauses(context, wait_s)
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
        """Like `read`, for a call that must not be repeated if it may have been applied."""
        pauses = self.pauses(context)
        while True:
            try:
                return await self._once(shard, here, there, leaving_s=ANSWER_GRACE_S)
            except (NotLeader, LeaderUnknown) as refusal:
                await pauses.again_or_raise(refusal)

    def pauses(self, context: RequestContext, wait_s: float = 0.0) -> Pauses:
        """The pauses between the attempts of one call, which may wait `wait_s` at the leader."""
        timeout_s = context.bounded_s(self._timeout_s + wait_s, self._clock.monotonic())
        return Pauses(self._router, self._clock, timeout_s)

    async def at_leader(self, shards: Collection[int], leader: Leader, there: Callable[[Leader], Awaitable[T]]) -> T:
        """The answer of `leader` to a read of `shards`. Raises `LeaderUnknown` once it leads one of them no more."""
        self.forwarded += 1
        return await self._while_leading(shards, leader, asyncio.ensure_future(there(leader)), 0.0)

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
            raise no_leader(shard)
        self.forwarded += 1
        return await self._while_leading((shard,), route.leader, asyncio.ensure_future(there(route.leader)), leaving_s)

    async def _while_leading(
        self, shards: Collection[int], leader: Leader, call: asyncio.Future[T], leaving_s: float
    ) -> T:
        """The answer of `call`, which has `leaving_s` left once `leader` was replaced in one of `shards`."""
        call.add_done_callback(_noticed)
        moves = {self._router.moved(shard, leader): shard for shard in shards}
        waited: list[asyncio.Future[Any]] = [call, *moves]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and leaving_s:
                await asyncio.wait((call,), timeout=leaving_s)
            if call.done():
                return call.result()
            shard = next(shard for moved, shard in moves.items() if moved.done())
        finally:
            for moved in moves:
                moved.cancel()
            if not call.done():
                call.cancel()
                await asyncio.wait((call,))
        message = f"{leader.broker_id} was replaced as leader of shard {shard} and did not answer"
        if leaving_s:
            raise Unavailable(f"{message}: the outcome is unknown. A retry may repeat the records")
        raise LeaderUnknown(message, retry_after_s=RETRY_AFTER_S)


class Pauses:
    """The growing pauses between the attempts of one call, and their end."""

    def __init__(self, leader_router: LeaderRouter, clock: Clock, timeout_s: float) -> None:
        self._router = leader_router
        self._clock = clock
        began_s = clock.monotonic()
        self._end_s = began_s + timeout_s
        self._end_cut_off_s = began_s + min(timeout_s, CUT_OFF_PATIENCE_S)
        self._pause_s = PAUSE_S_FIRST
        self._places = leader_router.places()

    async def again_or_raise(self, error: Unavailable) -> None:
        """Return when the next attempt is due; raise `error` if no time is left."""
        if not await self.passed():
            raise error

    async def passed(self) -> bool:
        """Return True when the next attempt is due, False at once if no time is left."""
        end_s = self._end_s if self._router.current else self._end_cut_off_s
        left_s = end_s - self._clock.monotonic()
        if left_s <= 0 or self._router.closed:
            return False
        self._notice_change()  # during the attempt
        await self._router.changed(min(left_s, self._pause_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        self._notice_change()
        return True

    def _notice_change(self) -> None:
        places = self._router.places()
        if places != self._places:
            self._places, self._pause_s = places, PAUSE_S_FIRST


def _noticed(call: asyncio.Future[Any]) -> None:
    """Take the error of `call`. After its caller was cancelled, asyncio would otherwise log the error as a defect."""
    if not call.cancelled():
        call.exception()
