"""`Peers` within one process: calls the other broker directly, with at most one hop."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.produce import Appended, Draft, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import LeaderUnknown
from tidelog.wire.groups import GroupRequest
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

A = TypeVar("A")


class DirectPeers:
    """All brokers of a test by address. A call to an unknown address fails, and nothing is sent. `visits` counts the
    client requests at each broker; a server waits for them before it closes its broker."""

    def __init__(self) -> None:
        self.reachable: dict[str, Broker] = {}
        self.visits: Counter[str] = Counter()

    @contextmanager
    def visiting(self, name: str) -> Iterator[None]:
        self.visits[name] += 1
        try:
            yield
        finally:
            self.visits[name] -= 1

    async def produce(
        self, context: RequestContext, leader: Leader, topic: str, share: Share, options: ProduceOptions
    ) -> Appended:
        answers: Sequence[Appended] = await self._peer(leader).produce(
            _forwarded(context), topic, Draft(share.records, None, share.held_bytes), options
        )
        return answers[0]

    async def fetch(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        return await self._peer(leader).fetch(_forwarded(context), topic, partition, offset, limits)

    async def fetch_parts(
        self, context: RequestContext, leader: Leader, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        return await self._peer(leader).fetch_parts(_forwarded(context), parts, limits)

    async def resolve(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, position: Position, *, fresh: bool
    ) -> int:
        return await self._peer(leader).resolve(_forwarded(context), topic, partition, position, fresh=fresh)

    async def topic_log(
        self, context: RequestContext, leader: Leader, topic: str, request: TopicLogRequest
    ) -> TopicLogDescription:
        return await self._peer(leader).topic_log(_forwarded(context), topic, request)

    async def delete_records(
        self, context: RequestContext, leader: Leader, topic: str, partition: int, before_offset: int
    ) -> int:
        return await self._peer(leader).delete_records(_forwarded(context), topic, partition, before_offset)

    async def group_call(
        self, context: RequestContext, leader: Leader, group: str, request: GroupRequest[A], *, wait_s: float
    ) -> A:
        return await self._peer(leader).groups.call(_forwarded(context), group, request)

    async def aclose(self) -> None:
        """Does nothing: there is no connection."""

    def _peer(self, leader: Leader) -> Broker:
        peer = self.reachable.get(leader.address)
        if peer is None:
            raise LeaderUnknown(f"{leader.address} cannot be reached", retry_after_s=0.1)
        return peer


def _forwarded(context: RequestContext) -> RequestContext:
    """As the peer's front makes it."""
    return replace(context, from_peer=True, may_forward=False)
