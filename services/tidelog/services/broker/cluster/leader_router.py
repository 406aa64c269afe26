"""Where each shard is led, as this broker knows it, and when that changes."""

from __future__ import annotations

import asyncio

from tidelog.coordinator.leadership.shard_host import ClusterView
from tidelog.coordinator.leadership.tasks import first_of
from tidelog.services.broker.api.cluster import Leader, Route
from tidelog.services.broker.shard.shard_set import ShardSet

LOOK_EVERY_S = 30.0
"""Leaders are compared this often even without a notification."""


class LeaderRouter:
    """Combines the leaders in `view` with the shards that are really led here. From `start` to `close` it notifies
    waiting calls (`moved`) when a shard has another leader."""

    def __init__(self, view: ClusterView, shards: ShardSet) -> None:
        self._view = view
        self._shards = shards
        self._waiting: dict[asyncio.Future[None], tuple[int, Leader]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self.closed = False

    def start(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Set `closed`: calls stop looking for a leader."""
        self.closed = True
        if self._watcher:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    @property
    def current(self) -> bool:
        """Whether this broker is notified of new leaders: not while it cannot reach etcd."""
        return self._view.health().reachable

    def leader(self, shard: int) -> Leader | None:
        """The other broker that leads `shard`; None if this one leads it, or if no leader is known."""
        record = self._view.leader_of(shard)
        if record is None or record.broker_id == self._view.me().broker_id:
            return None
        return Leader(record.broker_id, record.address, record.node_id, record.listeners)

    def route(self, shard: int) -> Route:
        if self._shards.leads(shard):
            return Route(shard, local=True, epoch=self._shards.epoch(shard))
        leader = self.leader(shard)
        if leader is None:
            return Route(shard, local=False)
        record = self._view.leaders().get(shard)
        return Route(shard, local=False, leader=leader, epoch=record.epoch if record else -1)

    def opens_here(self, shard: int) -> bool:
        """Whether this broker holds the leader key of `shard`, and is still opening its log."""
        record = self._view.leader_of(shard)
        return record is not None and record.broker_id == self._view.me().broker_id and not self._shards.leads(shard)

    def places(self) -> object:
        """Where all shards are led now. Compares unequal to an earlier value if that has changed."""
        return dict(self._view.leaders()), dict(self._shards.led())

    async def changed(self, timeout_s: float) -> None:
        """Return when a route may have changed, or after `timeout_s`."""
        await first_of(self._view.changed(timeout_s), self._shards.changed())

    def moved(self, shard: int, leader: Leader) -> asyncio.Future[None]:
        """A future that completes when `leader` no longer leads `shard`. A caller that stops waiting cancels it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.leader(shard) != leader:
            waiter.set_result(None)
        else:
            self._waiting[waiter] = (shard, leader)
            waiter.add_done_callback(self._waiting.pop)
        return waiter

    async def _watch(self) -> None:
        while True:
            await self.changed(LOOK_EVERY_S)
            for waiter, (shard, leader) in tuple(self._waiting.items()):
                if not waiter.done() and self.leader(shard) != leader:
                    waiter.set_result(None)
