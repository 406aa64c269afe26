"""Metrics of the groups that a broker coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tidelog.coordinator.groups.group_counts import WRITE_BUCKETS_S, GroupCounts
from tidelog.services.broker.telemetry.group_figures import GroupFigures


def group_metrics(figures: GroupFigures) -> Iterator[Metric]:
    counts = figures.counts
    for name, help_text, value in (
        ("tidelog_groups", "Groups in memory that this broker coordinates", figures.groups),
        ("tidelog_group_members", "Members of these groups", figures.members),
        ("tidelog_group_copy_age_seconds", "Age of the oldest offset that is not copied yet", figures.copy_age_s),
        ("tidelog_group_requests_waiting", "Requests to these groups without an answer", figures.waiting),
    ):
        yield GaugeMetricFamily(name, help_text, value)
    for name, help_text, total in (
        ("tidelog_group_requests_refused", "Requests to groups refused because a limit was reached", counts.refused),
        ("tidelog_group_offsets_committed", "Offsets committed", counts.offsets),
        ("tidelog_group_rebalances", "Assignments put into force", counts.events["rebalanced"]),
        (
            "tidelog_group_sessions_ended",
            "Members removed: silent, or late in a rebalance",
            counts.events["session_ended"],
        ),
        ("tidelog_group_session_extensions", "Times that all sessions began anew", counts.extensions),
        ("tidelog_group_write_failures", "Writes to the store of groups that failed", counts.writes_failed),
    ):
        yield CounterMetricFamily(name, help_text, total)
    requests = CounterMetricFamily("tidelog_group_requests", "Requests to groups", labels=["call"])
    for call, count in sorted(counts.requests.items()):
        requests.add_metric([call], count)
    yield requests
    yield _write_seconds(counts)


def _write_seconds(counts: GroupCounts) -> Metric:
    family = HistogramMetricFamily("tidelog_group_write_seconds", "A write to the store of groups")
    bounds = (*map(str, WRITE_BUCKETS_S), "+Inf")
    family.add_metric([], list(zip(bounds, accumulate(counts.write_buckets), strict=True)), counts.write_seconds)
    return family
