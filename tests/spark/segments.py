"""Descriptions of segments for tests that read none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tidelog.wire.topic_log import (
    PartitionLogDescription,
    SegmentDescription,
    SpanDescription,
    TopicLogDescription,
)


def segment(key: str, offsets: Mapping[int, tuple[int, int]], times: tuple[int, int] = (0, 0)) -> SegmentDescription:
    """A segment without gaps, with the offsets from the first to before the second of each partition."""
    spans, row = [], 0
    for partition, (start, end) in sorted(offsets.items()):
        if start < end:
            spans.append(SpanDescription(partition, start, end - 1, end - start, row))
            row += end - start
    return SegmentDescription(key, 0, 0, 0, "", *times, row, len(spans), tuple(spans))


def log_of(
    borders: Mapping[int, Sequence[int]], high_watermarks: Mapping[int, int] | None = None
) -> TopicLogDescription:
    """A topic whose segment *n* has the offsets between borders *n* and *n* + 1 of each partition."""
    edges = {partition: list(pairwise(found)) for partition, found in borders.items()}
    count = max(map(len, edges.values()), default=0)
    segments = tuple(
        segment(f"{n}.parquet", {p: found[n] for p, found in edges.items() if n < len(found)}) for n in range(count)
    )
    ends = tuple(
        PartitionLogDescription(p, 0, 1, found[0], found[-1], 0, (high_watermarks or {}).get(p, found[-1]))
        for p, found in borders.items()
    )
    return TopicLogDescription("web", "id", "file:///store", ends, segments)
