"""A span is found by bisection as a walk over all segments finds it, in the stored list and in the changes since."""

from __future__ import annotations

import random

import pytest
from tests.storage.topic_segments import PLACE

from tidelog.storage.manifests import segment_columns
from tidelog.storage.manifests.segment_columns import SegmentColumns, columns_of
from tidelog.storage.manifests.segment_list import FoundSpan, SegmentList
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment


def random_runs(draw: random.Random, runs: int, partitions: int) -> list[TopicSegment]:
    """Runs of one to three segments. A run has only some of the partitions, and some offsets were compacted away."""
    ends, made = [0] * partitions, []
    for run in range(runs):
        spans = []
        for number in sorted(draw.sample(range(partitions), draw.randint(1, partitions))):
            base_offset = ends[number] + draw.choice([0, 0, 3])
            count = draw.randint(1, 9)
            last_offset = base_offset + count - 1 + draw.choice([0, 0, 5]) * (count > 1)
            ends[number] = last_offset + 1
            spans.append(SegmentSpan(number, base_offset, last_offset, count, 100))
        cuts = sorted(draw.sample(range(1, len(spans) + 1), min(len(spans), draw.randint(1, 3))))
        for first, end in zip([0, *cuts[:-1]], [*cuts[:-1], len(spans)], strict=True):
            key = PLACE.key(f"{len(made):032x}")
            part = tuple(spans[first:end])
            made.append(TopicSegment(key, run, 0, 1_000, "0" * 64, 0, draw.randint(0, runs), 5, part))
    return made


def walked(segments: list[TopicSegment], number: int, offset: int, since_ms: int) -> FoundSpan | None:
    for segment in segments:
        row = 0
        for span in segment.spans:
            if span.partition == number and span.last_offset >= offset and segment.max_timestamp_ms >= since_ms:
                return FoundSpan(segment, span, row)
            row += span.records
    return None


@pytest.mark.parametrize("seed", range(20))
def test_any_offset_is_found_where_a_walk_finds_it(seed: int) -> None:
    draw = random.Random(seed)
    segments = random_runs(draw, draw.randint(1, 40), draw.randint(1, 8))
    cut, left = draw.randint(0, len(segments)), draw.randint(0, 5)
    listed = SegmentList(columns_of(segments[:cut])).changed((), segments[cut:])
    listed = listed.changed([segment.key for segment in segments[:left]], ())
    for _ in range(200):
        number, offset = draw.randint(0, 9), draw.randint(0, 300)
        since_ms = draw.choice([0, 0, draw.randint(0, 40)])
        expected = walked(segments[left:], number, offset, since_ms)
        assert listed.find(number, offset, since_ms or None) == expected


def test_the_spans_of_a_partition_follow_each_other() -> None:
    segments = random_runs(random.Random(1), 30, 5)
    listed = SegmentList(columns_of(segments[:40])).changed((), segments[40:])
    for number in range(5):
        found = list(listed.spans(number))
        assert [each.span for each in found] == [s for each in segments for s in each.spans if s.partition == number]
        half = found[len(found) // 2]
        assert next(listed.spans(number, half.span.last_offset)) == half


def test_a_search_looks_at_few_of_many_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [tuple(SegmentSpan(number, run * 10, run * 10 + 9, 10, 1) for number in range(50)) for run in range(256)]
    added = tuple(
        TopicSegment(PLACE.key(f"{run:032x}"), run, 0, 1, "", 0, run, 0, part) for run, part in enumerate(spans)
    )
    looked: list[int] = []
    made_of = SegmentColumns.segment

    def counted(columns: SegmentColumns, index: int) -> TopicSegment:
        looked.append(index)
        return made_of(columns, index)

    monkeypatch.setattr(SegmentColumns, "segment", counted)
    found = SegmentList(added=columns_of(added)).find(31, 1_234)
    assert found == FoundSpan(added[123], spans[123][31], 310)
    assert looked == [123]


def test_of_a_stored_segment_only_the_span_that_was_found_becomes_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = tuple(SegmentSpan(number, 0, number, number + 1, 5) for number in range(1_000))
    segment = TopicSegment(PLACE.key("0" * 32), 0, 0, 1, "", 0, 0, 0, spans)
    columns, made = columns_of([segment]), 0

    def counted(*values: int) -> SegmentSpan:
        nonlocal made
        made += 1
        return SegmentSpan(*values)

    monkeypatch.setattr(segment_columns, "SegmentSpan", counted)
    found = SegmentList(columns).find(700, 3)
    assert made == 1
    assert found == FoundSpan(segment, spans[700], 700 * 701 // 2)
    assert (list(found.segment.spans), found.segment.spans[2:4]) == (list(spans), spans[2:4])
    assert (hash(found.segment), found.segment.spans[-1]) == (hash(segment), spans[-1])
