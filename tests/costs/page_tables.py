"""The tables of docs/cost.md, made from the formulas: ``python -m tests.costs.page_tables``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from tests.costs.model import (
    Disks,
    Month,
    Network,
    Workload,
    archive_requests,
    grace_bytes,
    kafka_month,
    merge_requests,
    requests,
    stored_bytes,
    tidelog_month,
    wal_requests,
)

from tidelog.client.costs import GB_BYTES, MONTH_S, TopicCostDescription
from tidelog.client.prices import S3_STANDARD
from tidelog.services.settings.settings import Settings
from tidelog.storage.stores.counting import RequestCounts

EXAMPLE = Workload(raw_bytes=10e6, shards=4)
"""The worked example: 10 MB/s of JSON events, 30 days kept, two readers."""

GRACES_H = (1, 24, 72, 168)
"""An hour, a day (the default), three days, a week."""

YEAR = Path(__file__).parents[2] / "docs/evidence/year.json"
SETTINGS = Settings()
NETWORK, DISKS = Network(), Disks()


@dataclass(frozen=True)
class TopicShown:
    """A topic's numbers in a year's report."""

    figures: TopicCostDescription


@dataclass(frozen=True)
class CostShown:
    """The topics in a year's report."""

    topics: tuple[TopicShown, ...]


@dataclass(frozen=True)
class YearDocument:
    """The part of a year's report that is shown here."""

    cost: CostShown


def request_rows() -> Iterator[str]:
    """The example's requests in a month, and their cost."""
    for name, counts in (
        ("write-ahead log", wal_requests(EXAMPLE, SETTINGS, MONTH_S)),
        ("archiving", archive_requests(EXAMPLE, SETTINGS, MONTH_S)),
        ("merging, at most", merge_requests(EXAMPLE, SETTINGS, MONTH_S)),
        ("all", requests(EXAMPLE, SETTINGS)),
    ):
        yield _row(name, *(f"{part / 1e6:.2f} M" for part in _parts(counts)), f"{S3_STANDARD.requests_usd(counts):.2f}")


def puts_per_gb_rows() -> Iterator[str]:
    """PUTs per GB of raw records at 2 MB/s: the log's, the archive's (with as much merging as possible), and all."""
    for shards, topics in ((1, 1), (4, 1), (4, 10), (4, 100)):
        load = Workload(raw_bytes=2e6, shards=shards, topics=topics)
        seconds = GB_BYTES / load.raw_bytes
        parts = [part(load, SETTINGS, seconds).puts for part in (wal_requests, archive_requests, merge_requests)]
        yield _row(f"{shards:,}", f"{topics:,}", *(f"{puts:,.0f}" for puts in (*parts, sum(parts))))


def grace_rows() -> Iterator[str]:
    """What a topic's grace costs a month at most, by its ingest."""
    for name, load in (
        ("1 MB/s", _changed(raw_bytes=1e6)),
        ("10 MB/s", EXAMPLE),
        ("100 MB/s", _changed(raw_bytes=100e6)),
    ):
        usd = [S3_STANDARD.stored_month_usd(grace_bytes(load, hours / 24)) for hours in GRACES_H]
        yield _row(name, *(f"{each:,.2f}" for each in usd))


def month_rows() -> Iterator[str]:
    """The example's month, for Tidelog and for Kafka."""
    for name, month in _months(EXAMPLE):
        yield _row(name, *(f"{part:,.0f}" for part in (month.requests, month.stored, month.between_zones, month.total)))


def variation_rows() -> Iterator[str]:
    """Changes to the month: other loads, more topics, kept longer."""
    for name, load, settings in (
        ("the example", EXAMPLE, SETTINGS),
        ("1 MB/s", _changed(raw_bytes=1e6), SETTINGS),
        ("1 MB/s, one shard", _changed(raw_bytes=1e6, shards=1), SETTINGS),
        ("100 MB/s, 16 shards", _changed(raw_bytes=100e6, shards=16), SETTINGS),
        ("10 topics", _changed(topics=10), SETTINGS),
        ("100 topics", _changed(topics=100), SETTINGS),
        ("0.1 MB/s, one shard", _changed(raw_bytes=1e5, shards=1), SETTINGS),
        ("0.1 MB/s, one shard, 100 topics", _changed(raw_bytes=1e5, shards=1, topics=100), SETTINGS),
        ("kept for a year", _changed(kept_days=365), SETTINGS),
    ):
        tidelog = tidelog_month(load, settings, S3_STANDARD, NETWORK)
        kafka = kafka_month(load, NETWORK, DISKS)
        yield _row(
            name,
            f"{tidelog.requests:,.0f}",
            f"{tidelog.total:,.0f}",
            f"{kafka.total:,.0f}",
            f"{kafka.total / tidelog.total:.1f}",
        )


def year_rows() -> Iterator[str]:
    """The counted cost of a small year of events, by topic (`make year`), with the prices of this table."""
    document = msgspec.json.decode(YEAR.read_bytes(), type=YearDocument)
    for line in document.cost.topics:
        figures = line.figures
        per_gb = figures.usd_per_gb_written(S3_STANDARD)
        yield _row(
            figures.topic,
            *(f"{part:,.0f}" for part in _parts(figures.requests)),
            f"{figures.usd(S3_STANDARD):.4f}",
            f"{per_gb:.4f}" if per_gb else "",
            f"{figures.compression_ratio:.3f}",
            f"{figures.write_amplification:.2f}",
        )


def facts() -> Iterator[str]:
    """Figures in the text."""
    yield f"{stored_bytes(EXAMPLE) / 1e12:.2f} TB"
    example_usd = S3_STANDARD.requests_usd(requests(EXAMPLE, SETTINGS))
    yield f"{example_usd / (EXAMPLE.raw_bytes * MONTH_S / 1e9):.4f} dollars per GB"
    day_of_ingest = EXAMPLE.raw_bytes * EXAMPLE.stored * 86_400
    yield f"{day_of_ingest / GB_BYTES:.0f} GB a day"
    one = Workload(raw_bytes=1.0, shards=1)
    yield f"{S3_STANDARD.requests_usd(wal_requests(one, SETTINGS, MONTH_S)):.0f} dollars a month for each busy shard"
    yield f"{S3_STANDARD.requests_usd(archive_requests(one, SETTINGS, MONTH_S)):.2f} dollars a month for its archiving"


def _months(load: Workload) -> Iterator[tuple[str, Month]]:
    yield "Tidelog", tidelog_month(load, SETTINGS, S3_STANDARD, NETWORK)
    yield "Kafka, three zones", kafka_month(load, NETWORK, DISKS)


def _changed(**changes: float) -> Workload:
    return replace(EXAMPLE, **changes)


def _parts(counts: RequestCounts) -> tuple[float, float, float, float]:
    return counts.puts, counts.gets + counts.heads, counts.lists, counts.deletes


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for rows in (
        request_rows(),
        puts_per_gb_rows(),
        grace_rows(),
        month_rows(),
        variation_rows(),
        year_rows(),
        facts(),
    ):
        sys.stdout.write("\n".join(rows) + "\n\n")
