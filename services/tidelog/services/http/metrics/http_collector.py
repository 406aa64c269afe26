"""Exports requests, refusals and the bounds of the HTTP interface to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.services.http.front.request_measurements import RequestMeasurements
from tidelog.services.http.metrics.broker_collector import cumulated_buckets
from tidelog.services.http.service import Service


class HttpCollector(Collector):
    """The metrics of `service`, for a `CollectorRegistry`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        problems = CounterMetricFamily("tidelog_http_problems", "Requests refused or failed", labels=["status", "code"])
        for (status, code), count in sorted(self._service.problems.items()):
            problems.add_metric([str(status), code], count)
        yield problems
        yield from _requests(self._service.requests)
        forwarded = CounterMetricFamily("tidelog_http_forwarded", "Requests forwarded to a leader", labels=["method"])
        for method in ("GET", "POST"):
            forwarded.add_metric([method], self._service.forwarded[method])
        yield forwarded
        yield GaugeMetricFamily("tidelog_http_waiters", "Waiting long polls and streams", self._service.waiting.count)
        yield GaugeMetricFamily(
            "tidelog_http_body_bytes", "Bytes of bodies in memory", self._service.bodies.in_flight_bytes
        )


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
