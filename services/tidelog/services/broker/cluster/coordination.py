"""The part of coordination that a cluster's broker uses: join, lead, hand over, leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.coordinator.cluster.cluster_keys import ClusterIdentity
from tidelog.coordinator.leadership.shard_host import ClusterView
from tidelog.coordinator.topics.catalog_sync import CatalogChange
from tidelog.services.broker.groups.group_stores import GroupStores


class Coordination(Protocol):
    """Call `join`, then `lead`, and `leave` at the end; the others in between."""

    async def join(self, on_change: Callable[[CatalogChange], None]) -> ClusterIdentity:
        """Check that the bucket and the key-value store belong to one cluster (create it if both are new) and start to
        follow the journal, which must be open. Raises `WrongCluster`, `Invalid`, `Unavailable`, `Denied`, `Corrupt`."""

    async def lead(self) -> None:
        """Register this broker; from now on it is assigned shards to lead. Raises `Unavailable`, `Denied`."""

    async def hand_over(self) -> None:
        """Release every shard for good, in bounded time; the view stays current. Never raises."""

    async def leave(self) -> None:
        """Hand over the remaining shards, deregister, close the key-value store. Never raises."""

    @property
    def identity(self) -> ClusterIdentity:
        """The current identity, from `join` on; the number of shards may grow."""

    async def must_stop(self) -> str:
        """See `ClusterBroker.must_stop`."""

    @property
    def view(self) -> ClusterView:
        """The cluster as this broker sees it, from `join` on."""

    def group_stores(self) -> GroupStores:
        """Where the groups of this broker's shards are stored, from `join` on."""

    async def catch_up(self) -> None:
        """Read the journal to its end. Raises `Unavailable`, `Corrupt`."""

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        """See `api.Broker.drain`."""

    async def raise_feature_level(self, level: int) -> None:
        """See `api.Broker.raise_feature_level`."""
