"""The groups of a cluster: a call on a group goes to its coordinator, here or at a peer, in one hop.

All requests to groups may be repeated, so a call is repeated while the group's shard moves (`LeaderCalls.read`).
"""

from __future__ import annotations

from typing import Any, TypeVar

from tidelog.services.broker.api.cluster import Route
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.cluster.leader_calls import LeaderCalls
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.services.broker.cluster.peers import Peers
from tidelog.services.broker.groups.local_groups import PAGE_MAX, LocalGroups
from tidelog.storage.runtime import Clock
from tidelog.wire.classic_groups import JoinGroup, SyncGroup
from tidelog.wire.groups import GroupPage, GroupRequest

A = TypeVar("A")

SYNC_WAIT_S = 300.0
"""A SyncGroup may wait this long for the leader of its group, if the coordinator does not end it before."""
OPENING_S = 1.0
"""How long a call of a peer waits while this broker opens the log of the group's shard."""
_LOOK_S = 0.1
"""It looks this often, even without a notification."""


class ClusterGroups:
    """Implements `api.Groups`."""

    def __init__(
        self, local: LocalGroups, leader_router: LeaderRouter, calls: LeaderCalls, peers: Peers, clock: Clock
    ) -> None:
        self._local = local
        self._clock = clock
        self._router = leader_router
        self._calls = calls
        self._peers = peers

    async def call(self, context: RequestContext, /, group: str, request: GroupRequest[A]) -> A:
        if not context.may_forward:
            await self._opened(self._local.shard_of(group))
            return await self._local.call(context, group, request)
        wait_s = self._local.store_wait_s + barrier_wait_s(request)
        return await self._calls.read(
            context,
            self._local.shard_of(group),
            lambda: self._local.call(context, group, request),
            lambda leader: self._peers.group_call(context, leader, group, request, wait_s=wait_s),
            wait_s=wait_s,
        )

    async def groups(self, context: RequestContext, /, *, after: str = "", limit: int = PAGE_MAX) -> GroupPage:
        return await self._local.groups(context, after=after, limit=limit)

    def coordinator(self, _context: RequestContext, /, group: str) -> Route:
        return self._router.route(self._local.shard_of(group))

    async def _opened(self, shard: int) -> None:
        """Wait while this broker opens `shard`, so that its peers need not try again and again."""
        end_s = self._clock.monotonic() + OPENING_S
        while self._router.opens_here(shard) and (left_s := end_s - self._clock.monotonic()) > 0:
            await self._router.changed(min(left_s, _LOOK_S))


def barrier_wait_s(request: GroupRequest[Any]) -> float:
    """How long `request` may wait for other members of its group; 0 for most."""
    if isinstance(request, JoinGroup):
        return request.rebalance_timeout_ms / 1000
    return SYNC_WAIT_S if isinstance(request, SyncGroup) else 0.0
