"""The report of a year: Markdown for people, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import structs
from tests.year.year_outcome import YearOutcome

from tidelog.client import SegmentDescription
from tidelog.client.costs import TopicCostDescription
from tidelog.client.prices import S3_STANDARD
from tidelog.services.cli.console import size_text
from tidelog.services.cli.cost_json import cost_document


def write_report(outcome: YearOutcome, folder: Path) -> Path:
    """Write ``year.md`` and ``year.json`` in `folder`; return the page's path."""
    document = {
        "outcome": msgspec.to_builtins(_portable(outcome)),
        "cost": msgspec.to_builtins(cost_document(outcome.costs, S3_STANDARD)),
    }
    (folder / "year.json").write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
    page = folder / "year.md"
    page.write_text("\n".join(_page(outcome)) + "\n")
    return page


def _portable(outcome: YearOutcome) -> YearOutcome:
    """Replace the paths of this machine."""
    brokers = tuple(structs.replace(broker, store=broker.store.partition(":")[0]) for broker in outcome.costs.brokers)
    return replace(outcome, options=replace(outcome.options, etcd=None), costs=replace(outcome.costs, brokers=brokers))


def _page(outcome: YearOutcome) -> Iterator[str]:
    yield from _head(outcome)
    yield from _table(("check", "holds", "figures"), [(c.name, _yes(c.holds), c.shown) for c in outcome.checks])
    yield from _section("Faults of the broker")
    yield from _table(("day", "fault", "time away"), [(f.day, f.what, f"{f.away_s:.1f} s") for f in outcome.faults])
    yield from _bucket(outcome)
    yield from _reads(outcome)


def _head(outcome: YearOutcome) -> Iterator[str]:
    options, raw_bytes = outcome.options, sum(outcome.raw_bytes.values())
    records = sum(sum(counts) for counts in outcome.records.values())
    yield "# A year of events"
    yield ""
    yield "This is the report of one run of `make year`."
    yield ""
    yield (
        f"{options.days} days, {records:,} records, {size_text(raw_bytes)} of keys and values, seed {options.seed}; "
        f"produced in {outcome.produce_s:.0f} s ({raw_bytes / 1e6 / outcome.produce_s:.0f} MB/s), "
        f"{'at rest' if outcome.at_rest else 'NOT at rest'} {outcome.settled_s:.0f} s later, all read in "
        f"{outcome.replay_s:.0f} s, verified deeply in {outcome.verify_s:.0f} s. {outcome.stopped_early}"
    ).rstrip()
    yield ""


def _bucket(outcome: YearOutcome) -> Iterator[str]:
    """The contents of the bucket and their cost."""
    yield from _section("Objects in the bucket")
    yield from _table(
        ("kind", "objects", "bytes"), [(k.kind, f"{k.objects:,}", size_text(k.size_bytes)) for k in outcome.kinds]
    )
    yield from _section("Topics")
    yield from _table(_TOPIC_COLUMNS, [_topic(outcome, topic) for topic in outcome.costs.topics])
    yield from _section("Requests and dollars at S3 Standard's prices")
    yield from _table(
        ("topic", "PUT", "GET", "LIST", "DELETE", "$ so far", "$ per GB written", "$ per month, storage"),
        [_requests(topic) for topic in (*outcome.costs.topics, _rest(outcome))],
    )
    yield from _section("Segments of each topic and shard")
    yield from _table(
        ("topic", "shard", "segments", "largest", "together", "sizes"),
        [row for topic, segments in outcome.segments.items() for row in _segments(topic, segments)],
    )


def _reads(outcome: YearOutcome) -> Iterator[str]:
    fresh = ", each kind by a broker that has just started" if outcome.options.fresh_reads else ""
    yield from _section(f"Single reads{fresh}")
    yield from _table(
        ("read by", "reads", "p50", "p90", "longest", "requests, mean", "requests, most", "wrong"),
        [
            (
                read.what,
                read.count,
                f"{read.p50_ms:.1f} ms",
                f"{read.p90_ms:.1f} ms",
                f"{read.max_ms:.1f} ms",
                f"{read.requests_mean:.2f}",
                read.requests_max,
                len(read.wrong),
            )
            for read in outcome.reads
        ],
    )


_TOPIC_COLUMNS = (
    "topic",
    "records",
    "raw",
    "stored",
    "compressed / raw",
    "segments",
    "archived",
    "merged",
    "compacted",
    "write amplification",
    "kept by compaction",
)


def _topic(outcome: YearOutcome, topic: TopicCostDescription) -> Sequence[object]:
    return (
        topic.topic,
        f"{sum(outcome.records.get(topic.topic, ())):,}",
        size_text(outcome.raw_bytes.get(topic.topic, 0)),
        size_text(topic.cold_bytes),
        _ratio(topic.compression_ratio),
        topic.segments,
        size_text(topic.archived_bytes),
        size_text(topic.merged_bytes),
        size_text(topic.compacted_bytes),
        _ratio(topic.write_amplification),
        _ratio(topic.compaction_ratio),
    )


def _requests(topic: TopicCostDescription) -> Sequence[object]:
    asked = topic.requests
    per_gb = topic.usd_per_gb_written(S3_STANDARD)
    return (
        topic.topic,
        f"{asked.puts:,.0f}",
        f"{asked.gets:,.0f}",
        f"{asked.lists:,.0f}",
        f"{asked.deletes:,.0f}",
        f"{topic.usd(S3_STANDARD):.5f}",
        "" if per_gb is None else f"{per_gb:.5f}",
        f"{topic.stored_usd_month(S3_STANDARD):.5f}",
    )


def _rest(outcome: YearOutcome) -> TopicCostDescription:
    return TopicCostDescription.summed("(no topic)", (), outcome.costs.rest)


def _segments(topic: str, segments: Sequence[SegmentDescription]) -> Iterator[Sequence[object]]:
    for number in sorted({segment.shard for segment in segments}):
        sizes = [segment.size_bytes for segment in segments if segment.shard == number]
        shown = ", ".join(size_text(size) for size in sizes[:8]) + (", …" if len(sizes) > 8 else "")
        yield topic, number, len(sizes), size_text(max(sizes, default=0)), size_text(sum(sizes)), shown


def _section(title: str) -> Iterator[str]:
    yield from ("", f"## {title}", "")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "**NO**"
