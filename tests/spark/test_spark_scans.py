"""How `read` distributes a topic's segments over Spark's scans."""

from __future__ import annotations

import pytest
from tests.spark.segments import segment

from tidelog.spark_connector.queries.native_read import LISTED_AT_ONCE, SCANS_MAX, OffsetRange, offset_ranges, scans
from tidelog.spark_connector.reads.slices import ColdSlice, Piece


def whole_segments(count: int) -> list[ColdSlice]:
    segments = [segment(f"s{base}", {0: (base, base + 10)}) for base in range(0, 10 * count, 10)]
    return [ColdSlice(each, (Piece(each.spans[0], 10 * n, 10 * n + 10),)) for n, each in enumerate(segments)]


@pytest.mark.parametrize("count", [1, LISTED_AT_ONCE, LISTED_AT_ONCE + 1, 44, SCANS_MAX * LISTED_AT_ONCE])
def test_segments_of_a_local_store_are_dealt_evenly_and_each_once(count: int) -> None:
    segments = whole_segments(count)
    dealt = scans(segments, "file:///bucket")
    assert [piece for scan in dealt for piece in scan] == segments
    sizes = [len(scan) for scan in dealt]
    assert max(sizes) <= LISTED_AT_ONCE
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("count", "store"), [(SCANS_MAX * LISTED_AT_ONCE + 1, "file:///bucket"), (44, "s3://bucket/prefix"), (1, "s3://b")]
)
def test_very_many_segments_and_those_on_s3_are_one_scan_that_spark_lists_by_a_job(count: int, store: str) -> None:
    segments = whole_segments(count)
    assert scans(segments, store) == [segments]


def test_no_segments_are_no_scan() -> None:
    assert scans([], "file:///bucket") == []
    assert scans([], None) == []


def test_partitions_with_the_same_range_share_a_condition_and_the_pieces_of_a_partition_are_one_range() -> None:
    first, second = (segment(f"{n}", dict.fromkeys(range(4), (10 * n, 10 * n + 10))) for n in range(2))
    starts = {0: 3, 1: 3, 2: 0, 3: 9}
    slices = [
        ColdSlice(first, tuple(Piece(span, starts[span.partition], 10) for span in first.spans)),
        ColdSlice(second, tuple(Piece(span, 10, 15) for span in second.spans)),
    ]
    assert offset_ranges(slices) == [OffsetRange((0, 1), 3, 15), OffsetRange((2,), 0, 15), OffsetRange((3,), 9, 15)]
