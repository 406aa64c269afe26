"""Calls to other brokers: the seam between `ClusterBroker` and the transport of its calls.

Each call is one of `api.Broker` for one partition (`fetch_parts`: for many), sent to the leader of its shard, in one
hop: a peer that does not lead the shard refuses with `NotLeader` or `LeaderUnknown`, and the caller looks up the leader
again. Errors of the peer are raised as the same errors. If the peer cannot be reached, `LeaderUnknown` says that
nothing was sent, and `Unavailable` that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.produce import Appended, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.write.routing import Share
from tidelog.wire.groups import GroupRequest
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

A = TypeVar("A")


class Peers(Protocol):
    """Keeps connections between calls."""

    async def produce(
        self, context: RequestContext, leader: Leader, topic: str, share: Share, options: ProduceOptions
    ) -> Appended:
        """Append a share, whose records are checked already, to its partition."""

    async def fetch(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched: ...

    async def fetch_parts(
        self, context: RequestContext, leader: Leader, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        """`parts` in one call. The peer leaves cold partitions to the caller (`FetchedPart.cold`)."""

    async def resolve(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, position: Position, *, fresh: bool
    ) -> int: ...

    async def topic_log(
        self, context: RequestContext, leader: Leader, topic: str, request: TopicLogRequest
    ) -> TopicLogDescription:
        """A page of the one shard that `request` names."""

    async def delete_records(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, before_offset: int
    ) -> int: ...

    async def group_call(
        self, context: RequestContext, leader: Leader, group: str, request: GroupRequest[A], *, wait_s: float
    ) -> A:
        """A request to the coordinator of `group`, which may wait `wait_s` there."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
