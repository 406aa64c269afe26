"""How `read` distributes a topic's segments over Spark's scans."""

from __future__ import annotations

import pytest

from tidelog.spark_connector.native_read import LISTED_AT_ONCE, SCANS_MAX, scans
from tidelog.spark_connector.slices import ColdSlice
from tidelog.storage.manifests.manifest import Segment


def whole_segments(count: int) -> list[ColdSlice]:
    bases = range(0, 10 * count, 10)
    segments = [Segment(f"s{base}", base, base + 9, 10, 1_000, 0, 0, "") for base in bases]
    return [ColdSlice(0, segment, segment.base_offset, segment.last_offset + 1) for segment in segments]


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
