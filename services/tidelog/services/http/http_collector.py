"""What HTTP itself holds and refuses, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.services.http.service import Service


class HttpCollector(Collector):
    """Register it with a `CollectorRegistry`; each scrape takes one picture."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        problems = CounterMetricFamily("tidelog_http_problems", "Requests refused or failed", labels=["status", "code"])
        for (status, code), count in sorted(self._service.problems.items()):
            problems.add_metric([str(status), code], count)
        yield problems
        forwarded = CounterMetricFamily("tidelog_http_forwarded", "Requests sent on to a leader", labels=["method"])
        for method in ("GET", "POST"):
            forwarded.add_metric([method], self._service.forwarded[method])
        yield forwarded
        yield GaugeMetricFamily("tidelog_http_waiters", "Long polls and streams", self._service.connections.waiters)
        yield GaugeMetricFamily("tidelog_http_body_bytes", "Bodies in memory", self._service.bodies.in_flight_bytes)
