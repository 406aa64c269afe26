"""Exports a broker's measurements to Prometheus. Nothing is counted here; each scrape takes one snapshot.

Dollars are the price of the requests on S3 Standard, for every store, divided among topics by `request_shares`. Brokers
may see their cluster differently for a moment; alerts use the worst value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.client.prices import S3_STANDARD
from tidelog.services.broker.api.cluster import ClusterStatus, ShardStatus
from tidelog.services.broker.api.costs import TopicCounts
from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements, ClusterCounts, Histogram, PartitionLag
from tidelog.services.broker.telemetry.request_shares import topic_requests
from tidelog.services.doors.front_door import ServedBroker
from tidelog.services.http.metrics.archive_metrics import archive_metrics, brake_metrics, sweep_metrics
from tidelog.services.http.metrics.group_metrics import group_metrics
from tidelog.storage.stores.counting import Usage


class BrokerCollector(Collector):
    """The metrics of `broker`, for a `CollectorRegistry`."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        measured = self._broker.measurements()
        yield from _topic_metrics(measured)
        yield from archive_metrics(measured.archives, measured.topics)
        yield from brake_metrics(measured.brake)
        yield from sweep_metrics(measured.sweeps)
        yield from _store_metrics(measured.usage)
        yield CounterMetricFamily("tidelog_store_hedges", "Requests repeated beside a slow one", measured.hedges)
        status = self._broker.status()
        yield from _shard_metrics(status.shards)
        yield GaugeMetricFamily(
            "tidelog_damaged_objects", "Objects known to be missing or damaged", len(status.damages)
        )
        yield from _leadership_metrics(measured.cluster)
        yield from cluster_metrics(self._broker.cluster(BROKER_ITSELF))
        yield _ack_seconds(measured.ack_seconds)
        yield _lag(measured.lags)
        yield GaugeMetricFamily(
            "tidelog_buffered_bytes", "Bytes accepted and not committed yet", measured.buffered_bytes
        )
        yield GaugeMetricFamily(
            "tidelog_cache_bytes", "Bytes of recent records cached for readers", measured.cache_bytes
        )
        yield GaugeMetricFamily("tidelog_waiting_fetches", "Waiting long polls", measured.waiting_fetches)
        yield from group_metrics(measured.groups)


def _topic_metrics(measured: BrokerMeasurements) -> Iterator[Metric]:
    columns: tuple[tuple[str, str, Callable[[TopicCounts], float]], ...] = (
        ("tidelog_produced_records", "Records committed", lambda counts: counts.records_in),
        ("tidelog_produced_bytes", "Bytes of keys and values committed", lambda counts: counts.bytes_in),
        ("tidelog_fetched_records", "Records sent to readers", lambda counts: counts.records_out),
        ("tidelog_fetched_bytes", "Bytes of keys and values sent to readers", lambda counts: counts.bytes_out),
        ("tidelog_wal_puts", "PUTs of the WAL, divided among topics", lambda counts: counts.wal_puts),
        (
            "tidelog_cold_gets",
            "Reads of WAL entries or segments from the store for readers",
            lambda counts: counts.cold_gets,
        ),
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
        ("tidelog_store_requests", "Requests to the store, each try", requests),
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
        (
            "tidelog_shard_denied_seconds",
            "Time since the store began to refuse its commits",
            lambda shard: shard.denied_s,
        ),
        ("tidelog_shard_epoch", "The shard's epoch", lambda shard: shard.epoch),
        ("tidelog_wal_entries", "WAL entries not archived yet", lambda shard: shard.wal_next - shard.wal_floor),
        ("tidelog_wal_bytes", "Bytes of WAL entries not archived yet", lambda shard: shard.wal_bytes),
        ("tidelog_shard_buffered_bytes", "Bytes accepted and not committed yet", lambda shard: shard.buffered_bytes),
    ):
        family = GaugeMetricFamily(name, help_text, labels=["shard"])
        for shard in shards:
            family.add_metric([str(shard.shard)], value(shard))
        yield family


def _leadership_metrics(counts: ClusterCounts) -> Iterator[Metric]:
    yield GaugeMetricFamily("tidelog_shards_led", "Shards that this broker leads", counts.shards_led)
    for name, help_text, total in (
        ("tidelog_shard_handovers", "Shards handed over to another broker", counts.handovers),
        ("tidelog_shard_fencings", "Shards lost to another leader", counts.fencings),
        ("tidelog_peer_calls", "Calls on partitions sent to peers", counts.forwarded),
    ):
        yield CounterMetricFamily(name, help_text, total)


def cluster_metrics(status: ClusterStatus) -> Iterator[Metric]:
    """The cluster as one broker sees it. A broker without etcd is a cluster by itself."""
    leaderless = sum(place.leader is None for place in status.shards)
    for name, help_text, value in (
        ("tidelog_cluster_brokers", "Registered brokers", len(status.brokers)),
        ("tidelog_cluster_shards", "Shards of the cluster", len(status.shards)),
        ("tidelog_cluster_shards_without_leader", "Shards without a leader", leaderless),
        ("tidelog_coordinator_trouble", "1 while etcd cannot be reached or is not trusted", int(bool(status.trouble))),
    ):
        yield GaugeMetricFamily(name, help_text, value)


def cumulated_buckets(observed: Histogram) -> Sequence[tuple[str, int]]:
    """The buckets as Prometheus defines them: each counts the observations up to its bound."""
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
    family = GaugeMetricFamily(
        "tidelog_cold_end_lag_records", "Committed records that are in no segment yet", labels=["topic"]
    )
    for topic, records in behind.items():
        family.add_metric([topic], records)
    return family
