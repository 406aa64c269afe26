"""The broker of a cluster: accepts every call, and forwards calls on shards that another broker leads.

    calls        ClusterBroker ─▶ LocalBroker   shards led here
                               ├▶ Peers         shards that another broker leads, in one hop
                               └▶ ColdReader    cold records, from the bucket, whoever leads
    leadership   Coordination  ─▶ ShardSet      which shards to lead, from the key-value store

A call whose context may not be forwarded is answered by `LocalBroker` or refused. Any broker changes topics, through
the journal. All of this works while the key-value store is down: leaders keep leading, as the bucket proves, and the
journal is in the bucket too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.coordinator.topics.catalog_sync import CatalogChange
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.broker import WHOLE_LOG
from tidelog.services.broker.api.cluster import BrokerStatus, ClusterStatus, Route
from tidelog.services.broker.api.costs import BrokerCosts
from tidelog.services.broker.api.fetch import (
    Anchor,
    Fetched,
    FetchedPart,
    FetchLimits,
    FetchPart,
    Position,
)
from tidelog.services.broker.api.groups import Groups
from tidelog.services.broker.api.produce import Appended, Draft, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.archive.record_deletion import HIGH_WATERMARK
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.cluster.cluster_groups import ClusterGroups
from tidelog.services.broker.cluster.cluster_status import cluster_status, zones_of_shards
from tidelog.services.broker.cluster.cold_reader import ColdReader
from tidelog.services.broker.cluster.coordination import Coordination
from tidelog.services.broker.cluster.leader_calls import LeaderCalls
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.services.broker.cluster.part_calls import PartCalls, PartSources
from tidelog.services.broker.cluster.peers import Peers
from tidelog.services.broker.cluster.share_delivery import ShareDelivery
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.read.topic_log import topic_log_page
from tidelog.services.broker.shard.append_buffer import RETRY_AFTER_S
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements
from tidelog.services.broker.topics import check_partition
from tidelog.storage.errors import Overloaded, RecordsLost
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest


@dataclass(frozen=True)
class _Forwarding:
    router: LeaderRouter
    calls: LeaderCalls
    delivery: ShareDelivery
    part_calls: PartCalls
    groups: ClusterGroups


class ClusterBroker(LocalBroker):
    """See `api.Broker`. Accepts calls from `start` to `aclose`."""

    def __init__(self, parts: BrokerParts, coordination: Coordination, peers: Peers) -> None:
        super().__init__(parts)
        self._coordination = coordination
        self._peers = peers
        self._cold = ColdReader(parts.store, parts.reader, parts.resources.runtime)
        self._forwarding: _Forwarding | None = None
        self._handing_over = False

    async def start(self) -> None:
        """Read the topics and join the cluster; leadership assigns the shards afterwards. Raises `WrongCluster` if the
        bucket and the key-value store belong to different clusters, `Unavailable`, `Denied`, `Corrupt`; then everything
        is closed."""
        try:
            await self._join()
        except BaseException:
            await self._close()
            raise

    async def _join(self) -> None:
        await self._parts.journal.open()
        identity = await self._coordination.join(self._topics_changed)
        self.known_topics.shard_count = identity.shards
        self.known_topics.catch_up = self._coordination.catch_up
        router = LeaderRouter(self._coordination.view, self.shards)
        self.shards.join_cluster(router.leader, self._coordination.view.surely_leads)
        calls = LeaderCalls(router, self._clock, self._settings.forward_timeout_ms / 1000)
        sources = PartSources(super().fetch_parts, self._peers.fetch_parts, self._fetch_cold, self._cold)
        part_calls = PartCalls(sources, self.known_topics, router, calls, self._clock)
        self.local_groups.topics.know_zones(lambda: zones_of_shards(self._coordination.view))
        self.local_groups.open(self._coordination.group_stores())
        groups = ClusterGroups(self.local_groups, router, calls, self._peers, self._clock)
        delivery = ShareDelivery(self, self._peers, calls)
        self._forwarding = _Forwarding(router, calls, delivery, part_calls, groups)
        router.start()
        self.serve()
        await self._coordination.lead()

    async def hand_over(self) -> None:
        """Hand every shard to another broker, drained. Calls are still accepted, and forwarded to these brokers."""
        self._handing_over = True
        await self._coordination.hand_over()

    async def aclose(self) -> None:
        """Hand over the remaining shards, end the calls that still look for a leader, and release the store; within
        ``shutdown.timeout.ms``."""
        await self.hand_over()
        await self._close()

    async def _close(self) -> None:
        self.end_polls()
        if self._forwarding:
            await self._forwarding.router.close()
        await self._coordination.leave()
        await self._peers.aclose()
        await super().aclose()

    async def must_stop(self) -> str:
        """Return, with the reason, once this process must end because another one uses its broker id."""
        return await self._coordination.must_stop()

    @property
    def _joined(self) -> _Forwarding:
        if self._forwarding is None:
            raise Overloaded("the broker is starting. Retry; the request was not applied", retry_after_s=RETRY_AFTER_S)
        return self._forwarding

    def _topics_changed(self, change: CatalogChange) -> None:
        for topic in change.deleted:
            self.forget(topic)

    async def produce(
        self, context: RequestContext, /, topic: str, draft: Draft, options: ProduceOptions
    ) -> Sequence[Appended]:
        if not context.may_forward:
            return await super().produce(context, topic, draft, options)
        delivery = self._joined.delivery
        self.check_open()
        found = await self.topic_to_produce(context, topic, options)
        shares = await self.splitter.split(found, draft, options)
        return await delivery.deliver(context, found, shares, options)

    async def fetch(
        self, context: RequestContext, /, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        fetch_here = super().fetch
        if not context.may_forward:
            return await fetch_here(context, topic, partition, offset, limits)
        calls = self._joined.calls
        found = await self.known_topics.known(topic, partition)
        shard = found.shards[partition]
        capped = self.capped(context, limits)
        if not self.shards.leads(shard):
            cold = await self._fetch_cold(found, partition, offset, capped)
            if cold is not None:
                return cold
        end_s = self._clock.monotonic() + capped.wait_ms / 1000

        def left() -> FetchLimits:
            """With the rest of the wait, for a poll that continues at another leader."""
            return replace(capped, wait_ms=max(0, round((end_s - self._clock.monotonic()) * 1000)))

        return await calls.read(
            context,
            shard,
            lambda: fetch_here(context, topic, partition, offset, left()),
            lambda leader: self._peers.fetch(context, leader, topic, partition, offset, left()),
            wait_s=capped.wait_ms / 1000,
        )

    async def fetch_parts(
        self, context: RequestContext, /, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        if not context.may_forward:
            return await super().fetch_parts(context, parts, limits)
        return await self._joined.part_calls.fetch(context, parts, self.capped(context, limits))

    async def _fetch_cold(self, topic: Topic, partition: int, offset: int, limits: FetchLimits) -> Fetched | None:
        """Like `ColdReader.fetch`. A broker that is cut off from etcd notices a deleted topic when its objects are
        missing."""
        leader_known = self._joined.router.route(topic.shards[partition]).leader is not None
        try:
            return await self._cold.fetch(topic, partition, offset, limits, leader_known=leader_known)
        except RecordsLost:
            await self.known_topics.check_exists(topic)
            raise

    async def resolve(
        self, context: RequestContext, /, topic: str, partition: int, position: Position, *, fresh: bool = True
    ) -> int:
        resolve_here = super().resolve
        if not context.may_forward:
            return await resolve_here(context, topic, partition, position, fresh=fresh)
        calls = self._joined.calls
        found = await self.known_topics.known(topic, partition)
        if position.anchor is Anchor.OFFSET:
            return position.value
        return await calls.read(
            context,
            found.shards[partition],
            lambda: resolve_here(context, topic, partition, position, fresh=fresh),
            lambda leader: self._peers.resolve(context, leader, topic, partition, position, fresh=fresh),
        )

    async def topic_log(
        self, context: RequestContext, /, topic: str, request: TopicLogRequest = WHOLE_LOG
    ) -> TopicLogDescription:
        log_here = super().topic_log
        if not context.may_forward:
            return await log_here(context, topic, request)
        calls = self._joined.calls

        async def ask(shard: int, asked: TopicLogRequest) -> TopicLogDescription:
            return await calls.read(
                context,
                shard,
                lambda: log_here(context, topic, asked),
                lambda leader: self._peers.topic_log(context, leader, topic, asked),
            )

        return await topic_log_page(await self.known_topics.known(topic), self._parts.store.url, request, ask)

    async def delete_records(self, context: RequestContext, /, topic: str, partition: int, before_offset: int) -> int:
        delete_here = super().delete_records
        if not context.may_forward:
            return await delete_here(context, topic, partition, before_offset)
        calls = self._joined.calls
        found = await self.known_topics.known(topic, partition)
        offset = before_offset
        if before_offset == HIGH_WATERMARK:  # once, so that a retry does not delete records committed meanwhile
            offset = await self.resolve(context, topic, partition, Position(Anchor.LATEST))
        return await calls.read(
            context,
            found.shards[partition],
            lambda: delete_here(context, topic, partition, offset),
            lambda leader: self._peers.delete_records(context, leader, topic, partition, offset),
        )

    @property
    def groups(self) -> Groups:
        return self._joined.groups

    def route(self, _context: RequestContext, /, topic: str, partition: int) -> Route:
        router, found = self._joined.router, self.known_topics.get(topic)
        check_partition(found, partition)
        return router.route(found.shards[partition])

    async def route_fetch(self, _context: RequestContext, /, topic: str, partition: int, offset: int) -> Route:
        router, found = self._joined.router, await self.known_topics.known(topic, partition)
        route = router.route(found.shards[partition])
        if route.local:
            return route
        cold = await self._cold.holds(found, partition, offset, leader_known=route.leader is not None)
        return Route(route.shard, local=True, epoch=route.epoch) if cold else route

    def hears_of_leaders(self) -> bool:
        return self._forwarding is None or self._forwarding.router.current

    async def routes_changed(self, timeout_s: float) -> None:
        if self._forwarding:
            await self._forwarding.router.changed(timeout_s)
        else:
            await self._clock.sleep(timeout_s)

    def status(self) -> BrokerStatus:
        status = super().status()
        if self._forwarding is None:
            return status
        status = replace(status, node_id=self._coordination.view.me().node_id)
        if self._handing_over:
            return replace(status, ready=False, reason="the broker is stopping and hands its shards to other brokers")
        return replace(status, reason=status.reason or self._coordination.view.health().reason)

    def cluster(self, _context: RequestContext, /) -> ClusterStatus:
        if self._forwarding is None:
            return ClusterStatus("", self._settings.cluster_name, "etcd", "the broker is starting", (), ())
        return cluster_status(self._coordination.view, self._coordination.identity)

    def measurements(self) -> BrokerMeasurements:
        forwarded = self._forwarding.calls.forwarded if self._forwarding else 0
        measured = super().measurements()
        return replace(measured, cluster=replace(measured.cluster, forwarded=forwarded))

    async def costs(self, _context: RequestContext, /) -> BrokerCosts:
        broker_id = self._coordination.view.me().broker_id
        return await self.costs_as(broker_id, self._coordination.identity.shards)

    async def drain(self, _context: RequestContext, /, broker_id: str, *, undo: bool = False) -> None:
        await self._coordination.drain(broker_id, undo=undo)

    async def raise_feature_level(self, _context: RequestContext, /, level: int) -> None:
        await self._coordination.raise_feature_level(level)
