"""A broker's measurements as Prometheus reads them. Nothing is counted here; each scrape takes one picture.

Dollars are what the requests would cost on S3 Standard, whatever the store is, shared out to topics by `costs`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.client.prices import S3_STANDARD
from tidelog.services.broker.api.cluster import BrokerStatus, ShardStatus
from tidelog.services.broker.api.costs import TopicCounts
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements, ClusterCounts, Histogram, PartitionLag
from tidelog.services.broker.telemetry.request_shares import topic_requests
from tidelog.services.http.metrics.archive_metrics import archive_metrics, sweep_metrics
from tidelog.storage.stores.counting import Usage


class MeasuredBroker(Protocol):
    """A broker that can be measured."""

    def measurements(self) -> BrokerMeasurements:
        """What was counted up to now."""
        ...

    def status(self) -> BrokerStatus:
        """How it stands."""
        ...


class BrokerCollector(Collector):
    """Register it with a `CollectorRegistry`."""

    def __init__(self, broker: MeasuredBroker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        measured = self._broker.measurements()
        yield from _topic_metrics(measured)
        yield from archive_metrics(measured.archives, measured.topics)
        yield from sweep_metrics(measured.sweeps)
        yield from _store_metrics(measured.usage)
        yield CounterMetricFamily("tidelog_store_hedges", "Requests sent again beside a slow one", measured.hedges)
        status = self._broker.status()
        yield from _shard_metrics(status.shards)
        yield GaugeMetricFamily("tidelog_damaged_objects", "Known to be missing or damaged", len(status.damages))
        yield from _cluster_metrics(measured.cluster)
        yield _ack_seconds(measured.ack_seconds)
        yield _lag(measured.lags)
        yield GaugeMetricFamily("tidelog_buffered_bytes", "Taken and not committed yet", measured.buffered_bytes)
        yield GaugeMetricFamily("tidelog_cache_bytes", "Recent records kept for readers", measured.cache_bytes)
        yield GaugeMetricFamily("tidelog_waiting_fetches", "Long polls under way", measured.waiting_fetches)


def _topic_metrics(measured: BrokerMeasurements) -> Iterator[Metric]:
    columns: tuple[tuple[str, str, Callable[[TopicCounts], float]], ...] = (
        ("tidelog_produced_records", "Records committed", lambda counts: counts.records_in),
        ("tidelog_produced_bytes", "Bytes of keys and values committed", lambda counts: counts.bytes_in),
        ("tidelog_fetched_records", "Records given to readers", lambda counts: counts.records_out),
        ("tidelog_fetched_bytes", "Bytes of keys and values given to readers", lambda counts: counts.bytes_out),
        ("tidelog_wal_puts", "PUTs of the WAL, by each topic's part of them", lambda counts: counts.wal_puts),
        ("tidelog_cold_gets", "Reads of old WAL entries or segments for readers", lambda counts: counts.cold_gets),
    )
    for name, help_text, value in columns:
        family = CounterMetricFamily(name, help_text, labels=["topic"])
        for topic, counts in measured.topics.items():
            family.add_metric([topic], value(counts))
        yield family
    yield _topic_dollars(measured)


def _topic_dollars(measured: BrokerMeasurements) -> Metric:
    family = CounterMetricFamily("tidelog_estimated_dollars", "Requests at S3 Standard's prices", labels=["topic"])
    by_topic, _ = topic_requests(measured)
    for topic, requests in by_topic.items():
        family.add_metric([topic], S3_STANDARD.requests_usd(requests))
    return family


def _store_metrics(usage: Usage) -> Iterator[Metric]:
    requests: Counter[tuple[str, str]] = Counter()
    sent_bytes: Counter[tuple[str, str]] = Counter()
    received_bytes: Counter[tuple[str, str]] = Counter()
    for (purpose, verb), tally in usage.tallies.items():
        place = (verb.value, purpose.kind.value)
        requests[place] += tally.requests
        sent_bytes[place] += tally.sent_bytes
        received_bytes[place] += tally.received_bytes
    for name, help_text, totals in (
        ("tidelog_store_requests", "Requests to the store, every try", requests),
        ("tidelog_store_sent_bytes", "Bytes of objects sent to the store", sent_bytes),
        ("tidelog_store_received_bytes", "Bytes of objects read from the store", received_bytes),
    ):
        family = CounterMetricFamily(name, help_text, labels=["verb", "kind"])
        for place, total in totals.items():
            family.add_metric(list(place), total)
        yield family
    yield CounterMetricFamily(
        "tidelog_store_estimated_dollars",
        "All requests at S3 Standard's prices",
        S3_STANDARD.requests_usd(usage.counts()),
    )


def _shard_metrics(shards: Iterable[ShardStatus]) -> Iterator[Metric]:
    shards = tuple(shards)
    for name, help_text, value in (
        ("tidelog_shard_leading", "1 while this broker leads the shard", lambda shard: int(shard.leading)),
        ("tidelog_shard_denied_seconds", "How long the store has refused its commits", lambda shard: shard.denied_s),
        ("tidelog_shard_epoch", "The shard's epoch", lambda shard: shard.epoch),
        ("tidelog_wal_entries", "WAL entries not archived yet", lambda shard: shard.wal_next - shard.wal_floor),
        ("tidelog_wal_bytes", "Bytes of WAL entries not archived yet", lambda shard: shard.wal_bytes),
        ("tidelog_shard_buffered_bytes", "Taken and not committed yet", lambda shard: shard.buffered_bytes),
    ):
        family = GaugeMetricFamily(name, help_text, labels=["shard"])
        for shard in shards:
            family.add_metric([str(shard.shard)], value(shard))
        yield family


def _cluster_metrics(counts: ClusterCounts) -> Iterator[Metric]:
    yield GaugeMetricFamily("tidelog_shards_led", "Shards that this broker leads", counts.shards_led)
    for name, help_text, total in (
        ("tidelog_shard_handovers", "Shards let go cleanly, for another broker to lead", counts.handovers),
        ("tidelog_shard_fencings", "Shards lost to another leader", counts.fencings),
        ("tidelog_peer_calls", "Calls on partitions that peers were asked for", counts.forwarded),
    ):
        yield CounterMetricFamily(name, help_text, total)


def cumulated_buckets(observed: Histogram) -> Sequence[tuple[str, int]]:
    """The buckets as Prometheus has them: each counts what is at most its bound."""
    bounds = (*map(str, observed.bounds), "+Inf")
    return list(zip(bounds, accumulate(observed.counts), strict=True))


def _ack_seconds(observed: Histogram) -> Metric:
    family = HistogramMetricFamily("tidelog_ack_seconds", "From a produce with acks=all to its answer")
    family.add_metric([], cumulated_buckets(observed), observed.total)
    return family


def _lag(lags: Iterable[PartitionLag]) -> Metric:
    behind: Counter[str] = Counter()
    for lag in lags:
        behind[lag.topic] += lag.high_watermark - lag.cold_end
    family = GaugeMetricFamily("tidelog_cold_end_lag_records", "Committed and in no segment yet", labels=["topic"])
    for topic, records in behind.items():
        family.add_metric([topic], records)
    return family
