"""What a cluster's broker asks of coordination: to be let in, to be told of leaders and topics, and to go in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.coordinator.cluster.cluster_keys import ClusterIdentity
from tidelog.coordinator.leadership.shard_host import ClusterView
from tidelog.coordinator.topics.catalog_sync import CatalogChange


class Coordination(Protocol):
    """`join`, then `lead`, then `leave`; everything else in between."""

    async def join(self, on_change: Callable[[CatalogChange], None]) -> ClusterIdentity:
        """Check that the bucket and the key-value store are one cluster's (found it if both are new) and begin to
        follow the journal, which is open. Raises `WrongCluster`, `Invalid`, `Unavailable`, `Denied`, `Corrupt`."""
        ...

    async def lead(self) -> None:
        """Register, and from now on tell this broker's shards what to lead. Raises `Unavailable`, `Denied`."""
        ...

    async def hand_over(self) -> None:
        """Release every shard, for good, in bounded time; the view stays current. Never raises."""
        ...

    async def leave(self) -> None:
        """Hand over what was not yet, take leave of the others, let go of the key-value store. Never raises."""
        ...

    @property
    def identity(self) -> ClusterIdentity:
        """As it is now, from `join` on: the number of shards may grow."""
        ...

    async def must_stop(self) -> str:
        """As `ClusterBroker.must_stop`."""
        ...

    @property
    def view(self) -> ClusterView:
        """The cluster as it is seen here, from `join` on."""
        ...

    async def read_on(self) -> None:
        """Take over what other brokers have written to the journal. Raises `Unavailable`, `Corrupt`."""
        ...

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        """As `api.Broker.drain`."""
        ...
