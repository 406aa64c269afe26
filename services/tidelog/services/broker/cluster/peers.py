"""What a broker asks of its peers: the seam between the cluster's broker and whatever carries its calls.

The calls are `api.Broker`'s for one partition, at its leader. One hop and no more: a peer that does not lead the shard
refuses with `NotLeader` or `LeaderUnknown`, and whoever asked looks again where the leader is. Errors that the peer
answers come back as the same errors; a peer that cannot be reached is `LeaderUnknown` if nothing of the request was
sent, else `Unavailable`.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.fetch import Fetched, FetchLimits, PartitionLog, Position
from tidelog.services.broker.api.produce import Appended, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.write.routing import Share


class Peers(Protocol):
    """See the module's head. Connections are kept between calls."""

    async def produce(
        self, context: RequestContext, leader: Leader, topic: str, share: Share, options: ProduceOptions
    ) -> Appended:
        """Append a share, whose records were admitted here already, to its partition."""
        ...

    async def fetch(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        """As `api.Broker.fetch`."""
        ...

    async def resolve(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, position: Position, *, fresh: bool
    ) -> int:
        """As `api.Broker.resolve`."""
        ...

    async def partition_log(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, *, fresh: bool
    ) -> PartitionLog:
        """As `api.Broker.partition_log`."""
        ...

    async def delete_records(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, before_offset: int
    ) -> int:
        """As `api.Broker.delete_records`."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
