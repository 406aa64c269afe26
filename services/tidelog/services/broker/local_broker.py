"""The broker of one node: it leads every shard of the bucket itself and implements `api.Broker`.

Putting requests together is all it does: topics come from the `Catalog`, writing is the `ProducePath`'s and each
`ShardLeader`'s, reading the `PartitionReader`'s, and the `Archivist` turns WALs into segments behind their backs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tidelog.coordinator.topic import Topic
from tidelog.services.broker.admission import admit
from tidelog.services.broker.api import (
    Acks,
    Anchor,
    Appended,
    BrokerStatus,
    ClusterStatus,
    Draft,
    Fetched,
    FetchLimits,
    PartitionLog,
    Position,
    ProduceOptions,
    Route,
)
from tidelog.services.broker.append_buffer import RETRY_AFTER_S
from tidelog.services.broker.archiving import Archivist
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.long_poll import LongPolls
from tidelog.services.broker.measurements import BrokerMeasurements, PartitionLag
from tidelog.services.broker.partition_state import PartitionState
from tidelog.services.broker.producing import ProducePath
from tidelog.services.broker.routing import Share, check_all_name, route, whole
from tidelog.services.broker.shard_leader import ShardLeader
from tidelog.services.broker.status import broker_status, sole_cluster
from tidelog.storage.errors import AlreadyExists, Invalid, NotFound, Overloaded

DRAIN_SHARE = 0.8
"""How much of ``shutdown.timeout.ms`` goes to committing what was taken; the rest is for letting go."""


ROUTED_INLINE_MAX = 20_000
"""Requests of more records are checked and split in a thread."""


class LocalBroker:
    """See `api.Broker`. Between `start` and `aclose` it takes requests."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._clock = parts.means.runtime.clock
        self._leaders: dict[int, ShardLeader] = {}
        self._archivist: Archivist | None = None
        self._produce_path = ProducePath(
            self._leaders,
            parts.means.budget,
            parts.reader,
            commit_timeout_s=parts.settings.commit_timeout_ms / 1000,
        )
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._polls = LongPolls()
        self._not_ready: str | None = "the broker is starting"

    # ---- life

    async def start(self) -> None:
        """Claim every shard and take requests. Raises `Unavailable`, `Denied`, `Corrupt`."""
        await self._parts.journal.open()
        while added := [leader for shard, leader in self._parts.shards.leaders().items() if shard not in self._leaders]:
            await asyncio.gather(*(leader.open() for leader in added))
            self._leaders.update({leader.shard: leader for leader in added})
            # Whoever led before may have created topics until it was fenced; the archiver must know them all.
            await self._parts.journal.catch_up()
        self._archivist = self._parts.shards.archivist(self._leaders)
        self._archivist.start()
        self._not_ready = None

    async def aclose(self) -> None:
        """Refuse what is new, commit and answer what was taken, within `shutdown_timeout_ms`; then let go of the
        store."""
        self._not_ready = "the broker is stopping"
        self._polls.end()
        if self._archivist:
            await self._archivist.close()
        drains = [asyncio.create_task(leader.drain()) for leader in self._leaders.values()]
        if drains:
            await asyncio.wait(drains, timeout=DRAIN_SHARE * self._settings.shutdown_timeout_ms / 1000)
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)
        for leader in self._leaders.values():
            await leader.close()
        self._parts.means.executor.shutdown(wait=True)
        await self._parts.store.aclose()

    # ---- topics

    async def create_topic(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        self._check_open()
        count = self._settings.num_partitions if partitions is None else partitions
        topic = await self._parts.catalog.create(name, count, configs, shard_count=self._settings.shards)
        for shard in set(topic.shards):
            self._leaders[shard].partitions.born(topic)
        return topic

    async def alter_topic(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        self._check_open()
        return await self._parts.catalog.alter(name, partitions, configs, shard_count=self._settings.shards)

    async def delete_topic(self, name: str) -> None:
        self._check_open()
        topic = await self._parts.catalog.delete(name)
        self._forget(topic)

    def topic(self, name: str) -> Topic:
        return self._parts.catalog.get(name)

    def topics(self) -> Sequence[Topic]:
        return self._parts.catalog.list_topics()

    # ---- produce

    async def produce(self, topic: str, draft: Draft, options: ProduceOptions) -> Sequence[Appended]:
        self._check_open()
        came_s = self._clock.monotonic()
        found = await self._topic_to_produce(topic, options)
        if options.partition is None and draft.records.num_rows > ROUTED_INLINE_MAX:
            loop = asyncio.get_running_loop()
            shares = await loop.run_in_executor(self._parts.means.executor, self._shares, found, draft, options)
        else:
            shares = self._shares(found, draft, options)
        answers = await self._produce_path.produce(found, shares, options)
        if options.acks is Acks.ALL:
            self._parts.means.measurements.acked(self._clock.monotonic() - came_s)
        return answers

    async def _topic_to_produce(self, name: str, options: ProduceOptions) -> Topic:
        try:
            return self.topic(name)
        except NotFound:
            if not (self._settings.auto_create_topics_enable and options.auto_create):
                raise
        try:
            return await self.create_topic(name, None, {})
        except AlreadyExists:
            return self.topic(name)

    def _shares(self, topic: Topic, draft: Draft, options: ProduceOptions) -> Sequence[Share]:
        records = admit(
            draft.records,
            topic.config,
            key_bytes_max=self._settings.key_max_bytes,
            now_ms=self._clock.now_ms(),
        )
        if options.partition is None:
            if options.producer or options.expected_offset is not None:
                raise Invalid(
                    "expected_offset and a producer's sequence need one partition: name it", field="partition"
                )
            return route(
                records,
                draft.partitions,
                held_bytes=draft.body_bytes,
                partition_count=topic.partition_count,
                keyless_partition=next(self._turns[topic.topic_id]) % topic.partition_count,
            )
        _check_partition(topic, options.partition)
        check_all_name(draft.partitions, options.partition)
        return (whole(options.partition, records, draft.body_bytes),)

    # ---- fetch

    async def resolve(self, topic: str, partition: int, position: Position) -> int:
        leader, state = await self._state(topic, partition)
        match position.anchor:
            case Anchor.OFFSET:
                return position.value
            case Anchor.EARLIEST:
                return state.log_start_offset
            case Anchor.LATEST:
                return state.high_watermark
            case Anchor.FROM_END:
                return max(state.log_start_offset, state.high_watermark - position.value)
            case Anchor.TIMESTAMP:
                return await self._parts.reader.first_at(leader.partitions, state, position.value)

    async def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits) -> Fetched:
        leader, state = await self._state(topic, partition)
        state.check_readable(offset)
        if offset == state.high_watermark and limits.wait_ms > 0:
            await self._polls.wait(state, min(limits.wait_ms, self._settings.fetch_max_wait_ms) / 1000)
            leader.check_leading()
            state.check_readable(offset)
        capped = FetchLimits(
            min(limits.max_records, self._settings.fetch_max_records),
            min(limits.max_bytes, self._settings.fetch_max_bytes),
        )
        batches, next_offset = await self._parts.reader.read(leader.partitions, state, offset, capped)
        return Fetched(batches, next_offset, state.log_start_offset, state.high_watermark)

    async def partition_log(self, topic: str, partition: int) -> PartitionLog:
        _, state = await self._state(topic, partition)
        manifest = state.manifest
        return PartitionLog(
            topic=topic,
            topic_id=manifest.topic_partition.topic_id,
            partition=partition,
            shard=state.shard,
            log_start_offset=manifest.log_start_offset,
            cold_end=manifest.cold_end,
            high_watermark=state.high_watermark,
            manifest_version=manifest.version,
            segments=manifest.segments,
            store_url=self._parts.store.url,
        )

    async def _state(self, name: str, partition: int) -> tuple[ShardLeader, PartitionState]:
        topic = self.topic(name)
        _check_partition(topic, partition)
        leader = self._leaders[topic.shards[partition]]
        leader.check_leading()
        state = leader.partitions.loaded(topic.partition(partition)) or await leader.partitions.load(topic, partition)
        return leader, state

    async def archive_now(self) -> None:
        """Turn all that is committed into segments, whatever its age."""
        if self._archivist:
            await self._archivist.archive_all()
            await self._archivist.remove_deleted()

    # ---- what is known of it

    def status(self) -> BrokerStatus:
        return broker_status(self._parts.store.url, tuple(self._leaders.values()), self._not_ready)

    def measurements(self) -> BrokerMeasurements:
        """What was counted up to now."""
        means = self._parts.means
        states = [state for leader in self._leaders.values() for state in leader.partitions]
        return BrokerMeasurements(
            topics=dict(means.measurements.topics),
            ack_seconds=means.measurements.ack_seconds(),
            buffered_bytes=means.budget.used_bytes,
            cache_bytes=means.hot_tail.held_bytes,
            waiting_fetches=len(self._polls),
            lags=tuple(
                PartitionLag(s.topic, s.topic_partition.partition, s.cold_end, s.high_watermark) for s in states
            ),
            usage=self._parts.counting.usage(),
        )

    # ---- where things are: all here

    def route(self, topic: str, partition: int) -> Route:
        found = self.topic(topic)
        _check_partition(found, partition)
        return Route(found.shards[partition], local=True)

    async def route_fetch(self, topic: str, partition: int, offset: int) -> Route:  # noqa: ARG002  # all is here
        return self.route(topic, partition)

    async def routes_changed(self, timeout_s: float) -> None:
        await self._clock.sleep(timeout_s)

    def cluster(self) -> ClusterStatus:
        return sole_cluster(self._settings, self.status())

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:  # noqa: ARG002  # there is nobody else
        raise Invalid(f"{broker_id} cannot be drained: this broker is alone, and nobody could take its shards")

    def _check_open(self) -> None:
        if self._not_ready:
            raise Overloaded(f"{self._not_ready}; nothing was taken", retry_after_s=RETRY_AFTER_S)

    def _forget(self, topic: Topic) -> None:
        self._turns.pop(topic.topic_id, None)
        for shard in set(topic.shards):
            self._leaders[shard].partitions.deleted(topic)


def _check_partition(topic: Topic, partition: int) -> None:
    if not 0 <= partition < topic.partition_count:
        raise NotFound(f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition}")
