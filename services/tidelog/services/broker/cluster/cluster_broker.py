"""The broker of a cluster: it takes any request, and sends on what is led elsewhere.

    requests     ClusterRequests ─▶ LocalBroker   what is led here
                                 ├▶ Peers         what another broker leads (one hop: `here` sends nothing on)
                                 └▶ ColdReader    cold records, from the bucket, whoever leads
    leadership   Coordination    ─▶ ShardSet      which shards are led here, as the key-value store has it

Topics are changed through the journal by whichever broker is asked. A key-value store that is away stops none of this:
leaders go on leading, which the bucket proves, and the journal is on the bucket too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.coordinator.topics.catalog_sync import CatalogChange
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.broker import TopicConfigs
from tidelog.services.broker.api.cluster import BrokerStatus, ClusterStatus, Route
from tidelog.services.broker.api.costs import BrokerCosts
from tidelog.services.broker.api.fetch import Fetched, FetchLimits, PartitionLog, Position
from tidelog.services.broker.api.produce import Appended, Draft, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.cluster.cluster_requests import ClusterRequests
from tidelog.services.broker.cluster.cluster_status import cluster_status
from tidelog.services.broker.cluster.cold_reader import ColdReader
from tidelog.services.broker.cluster.coordination import Coordination
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.services.broker.cluster.peers import Peers
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.broker.shard.append_buffer import RETRY_AFTER_S
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements
from tidelog.storage.errors import Overloaded


class ClusterBroker:
    """See `api.Broker`. Between `start` and `aclose` it takes requests."""

    def __init__(self, parts: BrokerParts, coordination: Coordination, peers: Peers) -> None:
        self._parts = parts
        self._coordination = coordination
        self._peers = peers
        self.local = LocalBroker(parts)
        self._cold = ColdReader(parts.store, parts.reader, parts.resources.runtime.clock)
        self._router: LeaderRouter | None = None
        self._started: ClusterRequests | None = None
        self._handing_over = False

    @property
    def peer_secrets(self) -> PeerSecrets:
        return self._parts.peer_secrets

    # ---- life

    async def start(self) -> None:
        """Read the topics and join the cluster; shards come when leadership gives them. Raises `WrongCluster` if the
        bucket and the key-value store are not one cluster's, `Unavailable`, `Denied`, `Corrupt`; all is closed then."""
        try:
            await self._join()
        except BaseException:
            await self._close()
            raise

    async def _join(self) -> None:
        await self._parts.journal.open()
        identity = await self._coordination.join(self._topics_changed)
        self.local.known_topics.shard_count = identity.shards
        self.local.known_topics.read_on = self._coordination.read_on
        self._router = LeaderRouter(self._coordination.view, self.local.shards)
        self.local.shards.join_cluster(self._router.leader, self._coordination.view.surely_leads)
        self._started = ClusterRequests(
            self.local,
            self._peers,
            self._cold,
            self._router,
            self._parts.settings,
            self._parts.resources.runtime.clock,
        )
        self._router.start()
        self.local.serve()
        await self._coordination.lead()

    async def hand_over(self) -> None:
        """Have others lead what is led here, each shard drained; requests are taken on and sent to them."""
        self._handing_over = True
        await self._coordination.hand_over()

    async def aclose(self) -> None:
        """Hand over what was not yet, end the requests that still look for a leader, and let go of the store; within
        ``shutdown.timeout.ms``."""
        await self.hand_over()
        await self._close()

    async def _close(self) -> None:
        self.local.end_polls()
        if self._router:
            await self._router.close()
        await self._coordination.leave()
        await self._peers.aclose()
        await self.local.aclose()

    async def must_stop(self) -> str:
        """Return, with the reason, once this process has to end: another one has its broker id."""
        return await self._coordination.must_stop()

    @property
    def _requests(self) -> ClusterRequests:
        if self._started is None:
            raise Overloaded("the broker is starting; nothing was taken", retry_after_s=RETRY_AFTER_S)
        return self._started

    def _calls(self, context: RequestContext) -> LocalBroker | ClusterRequests:
        """Who answers a call on records: a request that may not be forwarded is answered here or refused."""
        return self._requests if context.may_forward else self.local

    def _topics_changed(self, change: CatalogChange) -> None:
        for topic in change.deleted:
            self.local.forget(topic)
            self._cold.forget(topic)

    # ---- topics

    async def create_topic(
        self, context: RequestContext, /, name: str, partitions: int | None, configs: TopicConfigs
    ) -> Topic:
        return await self.local.create_topic(context, name, partitions, configs)

    async def alter_topic(
        self, context: RequestContext, /, name: str, partitions: int | None, configs: TopicConfigs
    ) -> Topic:
        return await self.local.alter_topic(context, name, partitions, configs)

    async def delete_topic(self, context: RequestContext, /, name: str) -> None:
        await self.local.delete_topic(context, name)

    def topic(self, context: RequestContext, /, name: str) -> Topic:
        return self.local.topic(context, name)

    async def known_topic(self, context: RequestContext, /, name: str) -> Topic:
        return await self.local.known_topic(context, name)

    def topics(self, context: RequestContext, /) -> Sequence[Topic]:
        return self.local.topics(context)

    # ---- records

    async def produce(
        self, context: RequestContext, /, topic: str, draft: Draft, options: ProduceOptions
    ) -> Sequence[Appended]:
        return await self._calls(context).produce(context, topic, draft, options)

    async def resolve(
        self, context: RequestContext, /, topic: str, partition: int, position: Position, *, fresh: bool = True
    ) -> int:
        return await self._calls(context).resolve(context, topic, partition, position, fresh=fresh)

    async def fetch(
        self, context: RequestContext, /, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        return await self._calls(context).fetch(context, topic, partition, offset, limits)

    async def delete_records(self, context: RequestContext, /, topic: str, partition: int, before_offset: int) -> int:
        return await self._calls(context).delete_records(context, topic, partition, before_offset)

    async def partition_log(
        self, context: RequestContext, /, topic: str, partition: int, *, fresh: bool = True
    ) -> PartitionLog:
        return await self._calls(context).partition_log(context, topic, partition, fresh=fresh)

    # ---- where things are

    def route(self, context: RequestContext, /, topic: str, partition: int) -> Route:
        return self._requests.route(self.topic(context, topic), partition)

    async def route_fetch(self, _context: RequestContext, /, topic: str, partition: int, offset: int) -> Route:
        return await self._requests.route_fetch(topic, partition, offset)

    def hears_of_leaders(self) -> bool:
        return self._router is None or self._router.current

    async def routes_changed(self, timeout_s: float) -> None:
        if self._router:
            await self._router.changed(timeout_s)
        else:
            await self._parts.resources.runtime.clock.sleep(timeout_s)

    # ---- what is known of it

    def status(self) -> BrokerStatus:
        status = self.local.status()
        if self._started is None:
            return status
        if self._handing_over:
            return replace(status, ready=False, reason="the broker is stopping: others take over its shards")
        return replace(status, reason=status.reason or self._coordination.view.health().reason)

    def cluster(self, _context: RequestContext, /) -> ClusterStatus:
        if self._started is None:
            return ClusterStatus("", self._parts.settings.cluster_name, "etcd", "the broker is starting", (), ())
        return cluster_status(self._coordination.view, self._coordination.identity)

    def measurements(self) -> BrokerMeasurements:
        """What was counted up to now."""
        forwarded = self._started.calls.forwarded if self._started else 0
        measured = self.local.measurements()
        return replace(measured, cluster=replace(measured.cluster, forwarded=forwarded))

    async def costs(self, _context: RequestContext, /) -> BrokerCosts:
        broker_id = self._coordination.view.me().broker_id
        return await self.local.costs_as(broker_id, self._coordination.identity.shards)

    async def archive_now(self) -> None:
        """Turn what is committed in the shards led here into segments, whatever its age."""
        await self.local.archive_now()

    async def drain(self, _context: RequestContext, /, broker_id: str, *, undo: bool = False) -> None:
        await self._coordination.drain(broker_id, undo=undo)
