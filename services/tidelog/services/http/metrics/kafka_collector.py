"""Exports the counts of the Kafka door to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.http.metrics.broker_collector import cumulated_buckets


class KafkaCollector(Collector):
    """The metrics of `counts`, for a `CollectorRegistry`."""

    def __init__(self, counts: KafkaCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        counts = self._counts
        yield GaugeMetricFamily("tidelog_kafka_connections", "Open connections of Kafka clients", counts.connections)
        ended = CounterMetricFamily(
            "tidelog_kafka_ended_connections", "Connections that the broker refused or ended", labels=["reason"]
        )
        ended.add_metric(["max_connections"], counts.refused)
        ended.add_metric(["request"], counts.ended)
        yield ended
        moved = CounterMetricFamily("tidelog_kafka_bytes", "Bytes of requests and answers", labels=["direction"])
        moved.add_metric(["in"], counts.received_bytes)
        moved.add_metric(["out"], counts.sent_bytes)
        yield moved
        yield GaugeMetricFamily("tidelog_kafka_request_bytes", "Bytes of requests in memory", counts.held_bytes)
        yield from _requests(counts)


def _requests(counts: KafkaCounts) -> Iterable[Metric]:
    answered = CounterMetricFamily("tidelog_kafka_requests", "Answered requests", labels=["api", "version"])
    for (api, version), count in sorted(counts.requests.items()):
        answered.add_metric([api, str(version)], count)
    yield answered
    errors = CounterMetricFamily("tidelog_kafka_errors", "Error codes in answers", labels=["api", "code"])
    for (api, code), count in sorted(counts.errors.items()):
        errors.add_metric([api, code], count)
    yield errors
    seconds = HistogramMetricFamily(
        "tidelog_kafka_request_seconds", "From a request of a Kafka client to its answer", labels=["api"]
    )
    for api, observed in counts.seconds():
        seconds.add_metric([api], cumulated_buckets(observed), observed.total)
    yield seconds
