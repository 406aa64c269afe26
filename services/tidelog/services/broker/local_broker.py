"""A broker that answers from the shards it leads.

Alone, it leads all shards of the bucket. As a part of a cluster (`cluster.cluster_broker`), it leads those that
leadership assigns to it. It implements `api.Broker` by combining parts: `Topics`, `RequestSplitter` and `ProducePaths`
for produce, `LocalReads` for reads. The background loops archive, maintain and sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidelog.coordinator.cluster.allotted_ids import ProducerIds
from tidelog.coordinator.cluster.feature_level import feature_level_of, raise_feature_level
from tidelog.coordinator.cluster.identity import check_standalone
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.broker import WHOLE_LOG, TopicConfigs
from tidelog.services.broker.api.cluster import BrokerStatus, ClusterStatus, EpochEnd, Route
from tidelog.services.broker.api.costs import BrokerCosts
from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.groups import Groups
from tidelog.services.broker.api.produce import (
    Acks,
    ActiveProducer,
    Appended,
    Appending,
    Draft,
    PartDraft,
    ProduceOptions,
)
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.api.staging import Staging
from tidelog.services.broker.archive.record_deletion import RecordDeletion
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.groups.group_topics import GroupTopics
from tidelog.services.broker.groups.group_walk import GroupWalk
from tidelog.services.broker.groups.local_groups import LocalGroups
from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.broker.read.local_reads import LocalReads
from tidelog.services.broker.read.long_poll import LongPolls, PollWatch
from tidelog.services.broker.read.part_fetches import PartFetches
from tidelog.services.broker.read.topic_log import topic_log_page
from tidelog.services.broker.shard.append_buffer import RETRY_AFTER_S
from tidelog.services.broker.status import broker_status, sole_broker_id, sole_cluster
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements, ClusterCounts, PartitionLag
from tidelog.services.broker.topics import Topics, check_partition
from tidelog.services.broker.write.produce_paths import ProducePaths
from tidelog.services.broker.write.routing import RequestSplitter, Share
from tidelog.services.broker.write.staged_objects import StagedObjects
from tidelog.storage.errors import AlreadyExists, Invalid, NotFound, Overloaded
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

DRAIN_SHARE = 0.8
"""The fraction of ``shutdown.timeout.ms`` for committing accepted records; the rest is for closing."""


class LocalBroker:
    """See `api.Broker`. Accepts calls from `start` to `aclose`."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._clock = parts.resources.runtime.clock
        self.shards = parts.shards
        self.known_topics = Topics(parts.catalog, parts.settings, self.forget)
        self.splitter = RequestSplitter(parts.settings, self._clock, parts.resources.executor)
        self._produce_paths = ProducePaths(
            parts.settings, parts.resources, parts.shards, parts.reader, parts.brake, self.known_topics
        )
        self._producer_ids = ProducerIds(parts.journal)
        self._deletion = RecordDeletion(parts.shards, parts.archive_loop, self._clock)
        self._staging = StagedObjects(parts.store)
        self._polls = LongPolls()
        self._reads = LocalReads(parts.reader, parts.shards, self.known_topics, self._polls)
        self._part_fetches = PartFetches(self._reads, parts.reader, parts.shards, self.known_topics, self._polls)
        topics = GroupTopics(self.known_topics, self._clock)
        self.local_groups = LocalGroups(
            parts.groups, parts.shards, topics, lambda: self.known_topics.shard_count, parts.resources.runtime
        )
        self._loops = (
            *parts.loops,
            PollWatch(self._polls, parts.shards, parts.resources.runtime),
            GroupWalk(self.local_groups, parts.resources.runtime, parts.settings.offsets_retention_ms),
        )
        self._not_ready: str | None = "the broker is starting"

    @property
    def peer_secrets(self) -> PeerSecrets:
        return self._parts.peer_secrets

    async def start(self) -> None:
        """Claim every shard and accept calls. Raises `WrongCluster`, `Unavailable`, `Denied`, `Corrupt`."""
        await self._parts.journal.open()
        check_standalone(self._parts.journal)
        while added := self._existing_shards() - self.shards.led().keys():
            await asyncio.gather(*(self.shards.lead(shard) for shard in added))
            # The previous leader may have created topics until it was fenced.
            await self._parts.journal.catch_up()
        self.local_groups.open(self._parts.open_group_stores())
        self.serve()

    def serve(self) -> None:
        """Start the background loops and accept calls."""
        for loop in self._loops:
            loop.start()
        self._not_ready = None

    def _existing_shards(self) -> set[int]:
        """The shards of the settings, and all others that contain partitions."""
        used = {shard for topic in self.known_topics.all() for shard in topic.shards}
        return used.union(range(self._settings.shards))

    async def aclose(self) -> None:
        """Refuse new calls, commit and answer accepted ones within ``shutdown.timeout.ms``, then release the store."""
        self._not_ready = "the broker is stopping"
        self.end_polls()
        for loop in self._loops:
            await loop.close()
        drain_s = DRAIN_SHARE * self._settings.shutdown_timeout_ms / 1000
        await asyncio.gather(self.shards.drain(drain_s), self.local_groups.close(drain_s))
        await self.shards.close()
        self._parts.resources.executor.shutdown(wait=True)
        await self._parts.store.aclose()

    async def hand_over(self) -> None:
        """Hand the shards to other brokers; alone, there are none."""

    async def must_stop(self) -> str:
        """Return, with the reason, once this process must end; alone, never."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    def end_polls(self) -> None:
        """Answer all waiting fetches with the records that there are; none waits from now on."""
        self._polls.end()

    async def create_topic(
        self, _context: RequestContext, /, name: str, partitions: int | None, configs: TopicConfigs
    ) -> Topic:
        self.check_open()
        led_before = self.shards.led_shards()
        topic = await self.known_topics.create(name, partitions, configs)
        # Only for shards led since before the creation it is certain that the partitions have no manifests. In
        # another shard a different leader may have accepted and archived records since.
        for led in self.shards.led_shards():
            if led in led_before and led.shard in topic.shards:
                led.leader.partitions.topic_created(topic)
        return topic

    async def alter_topic(
        self, _context: RequestContext, /, name: str, partitions: int | None, configs: TopicConfigs
    ) -> Topic:
        self.check_open()
        return await self.known_topics.alter(name, partitions, configs)

    async def delete_topic(self, _context: RequestContext, /, name: str) -> None:
        self.check_open()
        await self.known_topics.delete(name)

    def topic(self, _context: RequestContext, /, name: str) -> Topic:
        return self.known_topics.get(name)

    async def known_topic(self, _context: RequestContext, /, name: str) -> Topic:
        return await self.known_topics.known(name)

    def topics(self, _context: RequestContext, /) -> Sequence[Topic]:
        return self.known_topics.all()

    def forget(self, topic: Topic) -> None:
        """Drop a topic that was deleted by any broker."""
        self.splitter.forget(topic)
        for led in self.shards.led_shards():
            led.leader.partitions.deleted(topic)

    async def produce(
        self, context: RequestContext, /, topic: str, draft: Draft, options: ProduceOptions
    ) -> Sequence[Appended]:
        self.check_open()
        found = await self.topic_to_produce(context, topic, options)
        shares = await self.splitter.split(found, draft, options)
        return await self.produce_shares(found, shares, options)

    async def produce_shares(
        self, topic: Topic, shares: Sequence[Share], options: ProduceOptions
    ) -> Sequence[Appended]:
        """Append checked records to partitions that are led here. Raises like `produce`."""
        return await self._produce_paths.produce(topic, shares, options)

    async def append_parts(self, _context: RequestContext, /, parts: Sequence[PartDraft], acks: Acks) -> Appending:
        self.check_open()
        return await self._produce_paths.append_parts(parts, acks)

    async def topic_to_produce(self, context: RequestContext, name: str, options: ProduceOptions) -> Topic:
        """The topic; it is created if that is allowed."""
        try:
            return await self.known_topics.known(name, options.partition)
        except NotFound:
            if not (self._settings.auto_create_topics_enable and options.auto_create):
                raise
        try:
            return await self.create_topic(context, name, None, {})
        except AlreadyExists:
            return self.known_topics.get(name)

    async def resolve(
        self, _context: RequestContext, /, topic: str, partition: int, position: Position, *, fresh: bool = True
    ) -> int:
        return await self._reads.resolve(topic, partition, position, fresh=fresh)

    async def fetch(
        self, context: RequestContext, /, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        return await self._reads.fetch(topic, partition, offset, self.capped(context, limits))

    def capped(self, context: RequestContext, limits: FetchLimits) -> FetchLimits:
        """`limits`, reduced to those of the settings and to the context's deadline."""
        wait_ms = min(limits.wait_ms, self._settings.fetch_max_wait_ms)
        if context.deadline_s is not None and wait_ms:
            wait_ms = int(context.bounded_s(wait_ms / 1000, self._clock.monotonic()) * 1000)
        return replace(
            limits,
            max_records=min(limits.max_records, self._settings.fetch_max_records),
            max_bytes=min(limits.max_bytes, self._settings.fetch_max_bytes),
            wait_ms=wait_ms,
        )

    async def epoch_end(self, _context: RequestContext, /, topic: str, partition: int, epoch: int) -> EpochEnd:
        return await self._reads.epoch_end(topic, partition, epoch)

    async def largest_timestamp(self, _context: RequestContext, /, topic: str, partition: int) -> int:
        return await self._reads.largest_timestamp(topic, partition)

    async def producers(self, _context: RequestContext, /, topic: str, partition: int) -> Sequence[ActiveProducer]:
        _, state = await self._reads.state(topic, partition)
        return state.producers.active()

    async def new_producer_id(self, _context: RequestContext, /) -> int:
        self.check_open()
        return await self._producer_ids.take()

    async def fetch_parts(
        self, context: RequestContext, /, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        return await self._part_fetches.fetch(parts, self.capped(context, limits), leave_cold=context.from_peer)

    @property
    def groups(self) -> Groups:
        return self.local_groups

    @property
    def staging(self) -> Staging:
        return self._staging

    async def delete_records(self, _context: RequestContext, /, topic: str, partition: int, before_offset: int) -> int:
        self.check_open()
        leader, state = await self._reads.state(topic, partition)
        return await self._deletion.delete(self.known_topics.get(topic), leader, state, before_offset)

    async def topic_log(
        self, _context: RequestContext, /, topic: str, request: TopicLogRequest = WHOLE_LOG
    ) -> TopicLogDescription:
        found = await self.known_topics.known(topic)

        async def ask(shard: int, asked: TopicLogRequest) -> TopicLogDescription:
            return await self._reads.shard_log(found, shard, asked)

        return await topic_log_page(found, self._parts.store.url, request, ask)

    async def archive_now(self) -> None:
        """Archive everything that is committed in the shards led here."""
        await self._parts.archive_loop.archive_all()
        await self._parts.collect_loop.remove_topics()

    async def upkeep_now(self) -> None:
        await self._parts.upkeep.run_all()
        await self._parts.collect_loop.collect_garbage()

    def status(self) -> BrokerStatus:
        leaders = [led.leader for led in self.shards.led_shards()]
        status = broker_status(self._parts.store.url, leaders, self._not_ready, self._parts.damages.current())
        groups, members = self.local_groups.size()
        reason = status.reason or self._parts.brake.trouble()
        return replace(status, reason=reason, groups=groups, group_members=members)

    def measurements(self) -> BrokerMeasurements:
        resources = self._parts.resources
        states = [state for led in self.shards.led_shards() for state in led.leader.partitions]
        return BrokerMeasurements(
            topics=resources.measurements.topics(),
            ack_seconds=resources.measurements.ack_seconds(),
            buffered_bytes=resources.budget.used_bytes,
            cache_bytes=resources.hot_tail.held_bytes,
            waiting_fetches=len(self._polls),
            lags=tuple(
                PartitionLag(state.topic, state.topic_partition.partition, state.cold_end, state.high_watermark)
                for state in states
            ),
            usage=self._parts.counting.usage(),
            hedges=self._parts.hedging.hedges if self._parts.hedging else 0,
            cluster=ClusterCounts(len(self.shards.led()), self.shards.handovers, self.shards.fencings),
            archives=self._parts.account.archives(),
            brake=self._parts.brake.figures(),
            sweeps=self._parts.sweeps.counts,
            groups=self.local_groups.figures(),
        )

    async def costs(self, _context: RequestContext, /) -> BrokerCosts:
        return await self.costs_as(sole_broker_id(self._settings), self.known_topics.shard_count)

    async def costs_as(self, broker_id: str, shards_total: int) -> BrokerCosts:
        """`costs` under this broker id, in a cluster of so many shards."""
        await self._parts.account.complete()
        return self._parts.account.costs(broker_id, self.measurements(), shards_total)

    def route(self, _context: RequestContext, /, topic: str, partition: int) -> Route:
        found = self.known_topics.get(topic)
        check_partition(found, partition)
        shard = found.shards[partition]
        return Route(shard, local=True, epoch=self.shards.epoch(shard))

    async def route_fetch(self, context: RequestContext, /, topic: str, partition: int, _offset: int) -> Route:
        return self.route(context, topic, partition)

    def hears_of_leaders(self) -> bool:
        return True

    async def routes_changed(self, timeout_s: float) -> None:
        await self._clock.sleep(timeout_s)

    def cluster(self, _context: RequestContext, /) -> ClusterStatus:
        return sole_cluster(self._settings, self.status(), feature_level_of(self._parts.journal))

    async def drain(self, _context: RequestContext, /, broker_id: str, *, undo: bool = False) -> None:  # noqa: ARG002
        raise Invalid(f"{broker_id} cannot be drained: it is the only broker, so no other one can lead its shards")

    async def raise_feature_level(self, _context: RequestContext, /, level: int) -> None:
        await raise_feature_level(self._parts.journal, None, level, ())

    def check_open(self) -> None:
        """Raises `Overloaded` unless this broker accepts calls."""
        if self._not_ready:
            raise Overloaded(f"{self._not_ready}. Retry; the request was not applied", retry_after_s=RETRY_AFTER_S)
