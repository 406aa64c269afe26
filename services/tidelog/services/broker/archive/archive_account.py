"""Sums up the archive of the shards that this broker leads, by topic, for `/metrics` and `/v1/cluster/cost`.

The figures of cold records come from the manifests of the shards, which pass through the broker anyway, so a scrape
costs no request. After a takeover some manifests are unknown; `complete` reads them: a LIST and a GET for each shard.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.costs import BrokerCosts, ColdFigures, TopicArchive, TopicCost, TopicCounts
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.telemetry.cold_figures import cold_figures
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements
from tidelog.services.broker.telemetry.request_shares import topic_requests
from tidelog.storage.layout import TopicPartition
from tidelog.storage.runtime import Clock
from tidelog.storage.stores.counting import RequestCounts

READS_AT_ONCE = 8

_Figures = Mapping[str, ColdFigures]
NO_FIGURES = ColdFigures()


class ArchiveAccount:
    """The archive of the shards that are led at each moment."""

    def __init__(self, store_url: str, catalog: Catalog, shards: ShardSet, clock: Clock) -> None:
        self._store_url = store_url
        self._catalog = catalog
        self._shards = shards
        self._clock = clock
        self._figures: dict[int, tuple[int, _Figures]] = {}
        self._since_ms = clock.now_ms()

    def archives(self) -> Mapping[str, TopicArchive]:
        """By topic, as far as it is known without a request."""
        hot, debt, oldest_ms = self._wal_figures()
        cold, now_ms = self._cold_figures(), self._clock.now_ms()
        found: dict[str, TopicArchive] = {}
        for topic in self._catalog.list_topics():
            shards = Counter(topic.shards[place.partition] for place in self._led_partitions(topic))
            if not shards:
                continue
            known = (
                replace(cold[shard].get(topic.topic_id, NO_FIGURES), partitions=partitions)
                for shard, partitions in shards.items()
                if shard in cold
            )
            found[topic.name] = TopicArchive(
                cold=sum(known, NO_FIGURES),
                hot_bytes=hot[topic.topic_id],
                debt_bytes=debt[topic.topic_id],
                debt_age_ms=max(0, now_ms - oldest_ms.get(topic.topic_id, now_ms)),
            )
        return found

    async def complete(self) -> None:
        """Read the manifests of led shards that are unknown. Raises `Unavailable`, `Corrupt`."""
        unknown = [led for led in self._shards.led_shards() if led.serving and led.manifest is None]
        at_once = asyncio.Semaphore(READS_AT_ONCE)

        async def read(led: LedShard) -> None:
            async with at_once:
                await led.apply(await led.leader.partitions.log.newest())

        outcomes = await asyncio.gather(*(read(led) for led in unknown), return_exceptions=True)
        for failure in (outcome for outcome in outcomes if outcome is not None):
            raise failure

    def costs(self, broker_id: str, measured: BrokerMeasurements, shards_total: int) -> BrokerCosts:
        """The costs in `measured`, whose `archives` are set."""
        requests, rest = topic_requests(measured)
        topics = {topic.name: topic for topic in self._catalog.list_topics()}
        return BrokerCosts(
            broker_id=broker_id,
            store_url=self._store_url,
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

    def _cold_figures(self) -> Mapping[int, _Figures]:
        """By shard and topic id; computed once for each version."""
        found: dict[int, tuple[int, _Figures]] = {}
        for led in self._shards.led_shards():
            if manifest := led.manifest:
                before = self._figures.get(led.shard)
                is_same = before is not None and before[0] == manifest.version
                found[led.shard] = before if before and is_same else (manifest.version, cold_figures(manifest))
        self._figures = found
        return {shard: figures for shard, (_, figures) in found.items()}

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
