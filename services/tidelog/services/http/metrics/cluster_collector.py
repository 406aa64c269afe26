"""The cluster as this broker sees it, for Prometheus. Brokers may differ for a moment; alerts take the worst."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.services.broker.api.cluster import ClusterStatus
from tidelog.services.broker.api.request_context import BROKER_ITSELF, RequestContext


class MemberBroker(Protocol):
    """A broker that knows its cluster; one without etcd is a cluster by itself."""

    def cluster(self, context: RequestContext, /) -> ClusterStatus:
        """Never blocks, never raises."""
        ...


class ClusterCollector(Collector):
    """Register it with a `CollectorRegistry`; each scrape takes one picture."""

    def __init__(self, broker: MemberBroker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        status = self._broker.cluster(BROKER_ITSELF)
        leaderless = sum(place.leader is None for place in status.shards)
        yield GaugeMetricFamily("tidelog_cluster_brokers", "Brokers that are registered", len(status.brokers))
        yield GaugeMetricFamily("tidelog_cluster_shards", "Shards of the cluster", len(status.shards))
        yield GaugeMetricFamily("tidelog_cluster_shards_without_leader", "Shards that nobody leads", leaderless)
        yield GaugeMetricFamily(
            "tidelog_coordinator_trouble", "1 while etcd cannot be reached or is not trusted", int(bool(status.trouble))
        )
