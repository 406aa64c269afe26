"""How the archive stands, for Prometheus: what lies where, what is owed, what the work on segments wrote, what sweeps
took away.

Totals are the broker's since it started, gauges those of the partitions that it leads: sums over brokers are the
cluster's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tidelog.client.prices import S3_STANDARD
from tidelog.services.broker.api.costs import TopicArchive, TopicCounts
from tidelog.services.broker.telemetry.brake_figures import BrakeFigures
from tidelog.services.broker.telemetry.measurements import SweepCounts
from tidelog.storage.bucket.sweep.sweep_report import Reason

_GAUGES: tuple[tuple[str, str, Callable[[TopicArchive], float]], ...] = (
    (
        "tidelog_hot_bytes",
        "Bytes of WAL entries in the bucket, divided among topics",
        lambda archive: archive.hot_bytes,
    ),
    (
        "tidelog_archive_debt_bytes",
        "Bytes of WAL entries that are in no segment yet",
        lambda archive: archive.debt_bytes,
    ),
    (
        "tidelog_archive_debt_seconds",
        "Age of the oldest record that is in no segment yet",
        lambda archive: archive.debt_age_ms / 1_000,
    ),
    ("tidelog_cold_bytes", "Bytes of segments", lambda archive: archive.cold.cold_bytes),
    ("tidelog_cold_raw_bytes", "Keys and values in segments", lambda archive: archive.cold.raw_bytes),
    ("tidelog_cold_segments", "Number of segments", lambda archive: archive.cold.segments),
    (
        "tidelog_garbage_bytes",
        "Bytes that left a manifest and are not deleted yet",
        lambda archive: archive.cold.garbage_bytes,
    ),
    (
        "tidelog_clean_offsets",
        "Offsets that compaction by key has processed",
        lambda archive: archive.cold.clean_offsets,
    ),
    ("tidelog_clean_records", "Records that compaction left below them", lambda archive: archive.cold.clean_records),
    (
        "tidelog_stored_dollars_per_month",
        "Stored bytes at S3 Standard's prices",
        lambda archive: S3_STANDARD.stored_month_usd(archive.stored_bytes),
    ),
)
_WORKS: tuple[tuple[str, Callable[[TopicCounts], int]], ...] = (
    ("archive", lambda counts: counts.archived_bytes),
    ("merge", lambda counts: counts.merged_bytes),
    ("compact", lambda counts: counts.compacted_bytes),
)


def archive_metrics(archives: Mapping[str, TopicArchive], topics: Mapping[str, TopicCounts]) -> Iterator[Metric]:
    """The archive, by topic."""
    for name, help_text, value in _GAUGES:
        family = GaugeMetricFamily(name, help_text, labels=["topic"])
        for topic, archive in archives.items():
            family.add_metric([topic], value(archive))
        yield family
    written = CounterMetricFamily(
        "tidelog_segment_bytes_written",
        "Bytes of segments written, by the work that wrote them",
        labels=["topic", "work"],
    )
    for topic, counts in topics.items():
        for work, total in _WORKS:
            written.add_metric([topic, work], total(counts))
    yield written


def brake_metrics(figures: BrakeFigures) -> Iterator[Metric]:
    """What is not archived, and how producers are slowed because of it."""
    yield GaugeMetricFamily(
        "tidelog_unarchived_bytes", "Bytes of WAL entries of led shards that are not archived yet", figures.debt_bytes
    )
    yield GaugeMetricFamily("tidelog_unarchived_bytes_max", "archiver.debt.max.bytes", figures.bytes_max)
    yield GaugeMetricFamily(
        "tidelog_produce_brake", "0 while produces are not slowed, 1 while they are refused", figures.pressure
    )
    yield CounterMetricFamily("tidelog_produces_delayed", "Produces that waited for the archiver", figures.delayed)
    yield CounterMetricFamily(
        "tidelog_produces_refused", "Produces refused because too much is not archived", figures.refused
    )


def sweep_metrics(counts: SweepCounts) -> Iterator[Metric]:
    """The sweeps of the broker that leads shard 0, which sweeps for all brokers."""
    sweeps = CounterMetricFamily("tidelog_sweeps", "Sweeps of the bucket, by how they ended", labels=["outcome"])
    sweeps.add_metric(["finished"], counts.finished)
    sweeps.add_metric(["cut_off"], counts.cut_off)
    yield sweeps
    for name, help_text, totals in (
        ("tidelog_sweep_deleted_objects", "Stray objects that sweeps deleted", counts.deleted),
        ("tidelog_sweep_deleted_bytes", "Bytes of stray objects that sweeps deleted", counts.deleted_bytes),
    ):
        family = CounterMetricFamily(name, help_text, labels=["reason"])
        for reason in Reason:
            family.add_metric([reason.value], totals.get(reason.value, 0))
        yield family
    yield GaugeMetricFamily(
        "tidelog_sweep_young_bytes", "Bytes of stray objects that are too young to be deleted", counts.young_bytes
    )
    yield GaugeMetricFamily("tidelog_sweep_left_alone", "Prefixes that a sweep could not judge", counts.left_alone)
