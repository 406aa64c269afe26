"""What HTTP itself holds and refuses, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.services.http.front.request_measurements import RequestMeasurements
from tidelog.services.http.metrics.broker_collector import cumulated_buckets
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
        yield from _requests(self._service.requests)
        forwarded = CounterMetricFamily("tidelog_http_forwarded", "Requests sent on to a leader", labels=["method"])
        for method in ("GET", "POST"):
            forwarded.add_metric([method], self._service.forwarded[method])
        yield forwarded
        yield GaugeMetricFamily("tidelog_http_waiters", "Long polls and streams", self._service.connections.waiters)
        yield GaugeMetricFamily("tidelog_http_body_bytes", "Bodies in memory", self._service.bodies.in_flight_bytes)


def _requests(measured: RequestMeasurements) -> Iterable[Metric]:
    answered = CounterMetricFamily(
        "tidelog_http_requests", "Requests whose answer began", labels=["route", "method", "status"]
    )
    for (route, method, status), count in sorted(measured.requests.items()):
        answered.add_metric([route, method, str(status)], count)
    yield answered
    seconds = HistogramMetricFamily(
        "tidelog_http_request_seconds", "From a request to its answer's head", labels=["route"]
    )
    for route, observed in measured.seconds():
        seconds.add_metric([route], cumulated_buckets(observed), observed.total)
    yield seconds
