"""Makes the segment of a plan: row groups of WAL entries are copied, and the rows between them are encoded again.

All entries of a pass are in memory as they are stored. `row_encoding` makes the row groups that cannot be copied. It
takes CPU time, so it runs in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from tidelog.storage.archive.row_encoding import encoded_runs
from tidelog.storage.archive.topic_plan import Copy, Part, Rows, TopicPlan
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.parquet.row_group_copy import RowGroupCopier
from tidelog.storage.segments.topic_segment import (
    SEGMENT_FLAVOR,
    SegmentPlace,
    encode_header,
    max_timestamp_ms,
    min_timestamp_ms,
    sha256_of,
)
from tidelog.storage.wal.stored_entry import StoredEntry


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the manifest says of a segment that its bytes do not. The change that adds it gives it its run."""

    segment_id: str
    archived_at_ms: int


def assembled(
    plan: TopicPlan, place: SegmentPlace, entries: Sequence[StoredEntry], facts: SegmentFacts
) -> EncodedSegment:
    """The segment of `plan`. Raises `Corrupt`, naming an entry."""
    copier = RowGroupCopier(SEGMENT_FLAVOR)
    raw_bytes: list[int] = []
    runs = [list(run) for _, run in groupby(plan.parts, type)]
    encoded = iter(encoded_runs(entries, [run for run in map(_rows_of, runs) if run]))
    for parts in runs:
        raw_bytes += next(encoded).added_to(copier) if _rows_of(parts) else _copy(copier, entries, parts)
    groups = copier.row_groups
    spans = _spans(plan, entries, raw_bytes)
    body = copier.finish(encode_header(place, spans))
    segment = TopicSegment(
        key=place.key(facts.segment_id),
        run=0,
        level=0,
        size_bytes=len(body),
        sha256=sha256_of(body),
        min_timestamp_ms=min_timestamp_ms(groups),
        max_timestamp_ms=max_timestamp_ms(groups),
        archived_at_ms=facts.archived_at_ms,
        spans=spans,
    )
    return EncodedSegment(plan.topic_id, segment, body)


def _rows_of(parts: Sequence[Part]) -> Sequence[Rows]:
    return [part for part in parts if isinstance(part, Rows)]


def _copy(copier: RowGroupCopier, entries: Sequence[StoredEntry], parts: Sequence[Part]) -> Sequence[int]:
    """Copy the row groups of `parts`, and return the uncompressed bytes of each part."""
    raw_bytes = []
    for part in parts:
        assert isinstance(part, Copy)
        source = entries[part.entry].source
        for index in range(part.first_group, part.end_group):
            copier.add(source, index)
        raw_bytes.append(sum(group.raw_bytes for group in source.footer.row_groups[part.first_group : part.end_group]))
    return raw_bytes


def _spans(plan: TopicPlan, entries: Sequence[StoredEntry], raw_bytes: Sequence[int]) -> tuple[SegmentSpan, ...]:
    """The spans of the segment. The parts of a partition, which have `raw_bytes`, are neighbours and count its
    records."""
    ends = np.cumsum([part.records for part in plan.partitions.values()])
    records = np.cumsum([_records(entries, part) for part in plan.parts])
    summed: npt.NDArray[np.int64] = np.zeros(len(ends), np.int64)
    np.add.at(summed, np.searchsorted(ends, records), raw_bytes)
    return tuple(
        SegmentSpan(number, part.base_offset, part.next_offset - 1, part.records, int(summed[place]))
        for place, (number, part) in enumerate(plan.partitions.items())
    )


def _records(entries: Sequence[StoredEntry], part: Part) -> int:
    if isinstance(part, Rows):
        return part.count
    return sum(group.rows for group in entries[part.entry].source.footer.row_groups[part.first_group : part.end_group])
