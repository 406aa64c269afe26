"""Sums up the archive of the shards that this broker leads, by topic, for `/metrics` and `/v1/cluster/cost`.

The figures of cold partitions come from manifests that pass through the broker anyway (`ColdLedger`), so a scrape costs
no request. After a takeover some partitions are unknown; `complete` reads their manifests, up to a bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.costs import BrokerCosts, ColdFigures, TopicArchive, TopicCost, TopicCounts
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements, Measurements
from tidelog.services.broker.telemetry.request_shares import topic_requests
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock
from tidelog.storage.stores.counting import RequestCounts

READ_MAX = 1_000
"""Manifests read for one answer: a LIST and a GET each, at most a cent on S3."""
READS_AT_ONCE = 8


class ArchiveAccount:
    """The archive of the shards that are led at each moment."""

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        shards: ShardSet,
        measurements: Measurements,
        clock: Clock,
        *,
        read_max: int = READ_MAX,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._shards = shards
        self._cold = measurements.cold
        self._clock = clock
        self._read_max = read_max
        self._since_ms = clock.now_ms()

    def archives(self) -> Mapping[str, TopicArchive]:
        """By topic, as far as it is known without a request."""
        hot, debt, oldest_ms = self._wal_figures()
        now_ms = self._clock.now_ms()
        found: dict[str, TopicArchive] = {}
        led: set[TopicPartition] = set()
        for topic in self._catalog.list_topics():
            places = tuple(self._led_partitions(topic))
            led.update(places)
            if not places:
                continue
            known = (figures for place in places if (figures := self._cold.of(place)))
            found[topic.name] = TopicArchive(
                cold=sum(known, ColdFigures()),
                hot_bytes=hot[topic.topic_id],
                debt_bytes=debt[topic.topic_id],
                debt_age_ms=max(0, now_ms - oldest_ms.get(topic.topic_id, now_ms)),
            )
        self._cold.keep(led)
        return found

    async def complete(self) -> None:
        """Read the manifests of unknown partitions that are led here, at most `read_max`. Raises `Unavailable`,
        `Corrupt`."""
        unknown = [
            (topic, place)
            for topic in self._catalog.list_topics()
            for place in self._led_partitions(topic)
            if self._cold.of(place) is None
        ]
        at_once = asyncio.Semaphore(READS_AT_ONCE)

        async def read(topic: Topic, place: TopicPartition) -> None:
            async with at_once:
                self._cold.manifest_read(await ManifestLog(self._store, topic.name, place).latest())

        outcomes = await asyncio.gather(
            *(read(topic, place) for topic, place in unknown[: self._read_max]), return_exceptions=True
        )
        for failure in (outcome for outcome in outcomes if outcome is not None):
            raise failure

    def costs(self, broker_id: str, measured: BrokerMeasurements, shards_total: int) -> BrokerCosts:
        """The costs in `measured`, whose `archives` are set."""
        requests, rest = topic_requests(measured)
        topics = {topic.name: topic for topic in self._catalog.list_topics()}
        return BrokerCosts(
            broker_id=broker_id,
            store_url=self._store.url,
            since_ms=self._since_ms,
            now_ms=self._clock.now_ms(),
            shards=tuple(sorted(self._shards.led())),
            shards_total=shards_total,
            topics=tuple(
                TopicCost(
                    topic=name,
                    requests=requests.get(name, RequestCounts()),
                    counts=measured.topics.get(name, TopicCounts()),
                    archive=measured.archives.get(name, TopicArchive()),
                    partitions=len(tuple(self._led_partitions(topics[name]))) if name in topics else 0,
                )
                for name in sorted(requests.keys() | measured.archives.keys())
            ),
            rest=rest,
        )

    def _led_partitions(self, topic: Topic) -> Iterator[TopicPartition]:
        return (topic.partition(number) for number, shard in enumerate(topic.shards) if self._shards.leads(shard))

    def _wal_figures(self) -> tuple[Counter[str], Counter[str], Mapping[str, int]]:
        """By topic id: hot bytes, unarchived bytes, and the time of the oldest unarchived entry."""
        hot: Counter[str] = Counter()
        debt: Counter[str] = Counter()
        oldest_ms: dict[str, int] = {}
        for led in self._shards.led_shards():
            extent = led.leader.extent
            debt.update(extent.debt_bytes())
            hot.update(extent.debt_bytes())
            hot.update(extent.passed_bytes_of_topics())
            for topic_id, since_ms in extent.debt_since_ms().items():
                oldest_ms[topic_id] = min(since_ms, oldest_ms.get(topic_id, since_ms))
        return hot, debt, oldest_ms
