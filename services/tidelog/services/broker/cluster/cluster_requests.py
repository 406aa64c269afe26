"""Produce and fetch in a cluster: answered here if the shard is led here or records are cold, else by its leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import Route
from tidelog.services.broker.api.fetch import Anchor, Fetched, FetchLimits, PartitionLog, Position
from tidelog.services.broker.api.produce import Appended, Draft, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.archive.record_deletion import HIGH_WATERMARK
from tidelog.services.broker.cluster.cold_reader import ColdReader
from tidelog.services.broker.cluster.leader_calls import LeaderCalls
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.services.broker.cluster.peers import Peers
from tidelog.services.broker.cluster.share_delivery import ShareDelivery
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.topics import check_partition
from tidelog.services.runtime.settings import Settings
from tidelog.storage.errors import RecordsLost
from tidelog.storage.runtime import Clock


class ClusterRequests:
    """Raises what `api.Broker`'s calls do."""

    def __init__(
        self,
        local: LocalBroker,
        peers: Peers,
        cold: ColdReader,
        leader_router: LeaderRouter,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self.calls = LeaderCalls(leader_router, clock, settings.forward_timeout_ms / 1000)
        self._local = local
        self._peers = peers
        self._cold = cold
        self._router = leader_router
        self._settings = settings
        self._clock = clock
        self._delivery = ShareDelivery(local, peers, self.calls)

    async def produce(
        self, context: RequestContext, /, topic: str, draft: Draft, options: ProduceOptions
    ) -> Sequence[Appended]:
        self._local.check_open()
        found = await self._local.topic_to_produce(topic, options)
        shares = await self._local.splitter.split(found, draft, options)
        return await self._delivery.deliver(context, found, shares, options)

    async def fetch(
        self, context: RequestContext, /, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        found = await self._local.known_topics.known(topic, partition)
        shard = found.shards[partition]
        capped = self._local.capped(context, limits)
        if not self._local.shards.leads(shard):
            cold = await self._fetch_cold(found, partition, offset, capped)
            if cold is not None:
                return cold
        end_s = self._clock.monotonic() + capped.wait_ms / 1000

        def left() -> FetchLimits:
            """What is left of the wait, for a poll that goes on at another leader."""
            return replace(capped, wait_ms=max(0, round((end_s - self._clock.monotonic()) * 1000)))

        return await self.calls.read(
            context,
            shard,
            lambda: self._local.fetch(context, topic, partition, offset, left()),
            lambda leader: self._peers.fetch(context, leader, topic, partition, offset, left()),
            wait_s=capped.wait_ms / 1000,
        )

    async def _fetch_cold(self, topic: Topic, partition: int, offset: int, limits: FetchLimits) -> Fetched | None:
        """As `ColdReader.fetch`. A broker that is cut off from etcd hears of a deleted topic when its objects are
        gone."""
        known = self._router.route(topic.shards[partition]).leader is not None
        try:
            return await self._cold.fetch(topic, partition, offset, limits, leader_known=known)
        except RecordsLost:
            await self._local.known_topics.check_there(topic)
            raise

    async def resolve(
        self, context: RequestContext, /, topic: str, partition: int, position: Position, *, fresh: bool = True
    ) -> int:
        found = await self._local.known_topics.known(topic, partition)
        if position.anchor is Anchor.OFFSET:
            return position.value
        return await self.calls.read(
            context,
            found.shards[partition],
            lambda: self._local.resolve(context, topic, partition, position, fresh=fresh),
            lambda leader: self._peers.resolve(context, leader, topic, partition, position, fresh=fresh),
        )

    async def partition_log(
        self, context: RequestContext, /, topic: str, partition: int, *, fresh: bool = True
    ) -> PartitionLog:
        found = await self._local.known_topics.known(topic, partition)
        return await self.calls.read(
            context,
            found.shards[partition],
            lambda: self._local.partition_log(context, topic, partition, fresh=fresh),
            lambda leader: self._peers.partition_log(context, leader, topic, partition, fresh=fresh),
        )

    async def delete_records(self, context: RequestContext, /, topic: str, partition: int, before_offset: int) -> int:
        found = await self._local.known_topics.known(topic, partition)
        offset = before_offset
        if before_offset == HIGH_WATERMARK:  # once: what is committed while a lost call is tried again stays
            offset = await self.resolve(context, topic, partition, Position(Anchor.LATEST))
        return await self.calls.read(
            context,
            found.shards[partition],
            lambda: self._local.delete_records(context, topic, partition, offset),
            lambda leader: self._peers.delete_records(context, leader, topic, partition, offset),
        )

    def route(self, topic: Topic, partition: int) -> Route:
        check_partition(topic, partition)
        return self._router.route(topic.shards[partition])

    async def route_fetch(self, topic: str, partition: int, offset: int) -> Route:
        found = await self._local.known_topics.known(topic, partition)
        route = self._router.route(found.shards[partition])
        if route.local:
            return route
        known = route.leader is not None
        cold = await self._cold.holds(found, partition, offset, leader_known=known)
        return Route(route.shard, local=True) if cold else route
