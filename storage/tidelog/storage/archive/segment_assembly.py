"""Makes the segment of a plan: row groups of WAL entries are copied, and the rows between them are encoded again.

All entries of a pass are in memory as they are stored. An entry is decoded only if the plan takes rows of it. It takes
CPU time, so it runs in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.archive.topic_plan import Copy, Rows, TopicPlan
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.row_group_copy import CopySource, RowGroupCopier
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
    for source, index in _row_groups(plan, entries):
        copier.add(source, index)
    groups = copier.row_groups
    spans = _spans(plan, entries)
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


def _row_groups(plan: TopicPlan, entries: Sequence[StoredEntry]) -> Iterator[tuple[CopySource, int]]:
    """The row groups of the segment in order, each in the object that holds it."""
    for kind, parts in groupby(plan.parts, type):
        if kind is Rows:
            rows = [_rows(entries, part) for part in parts if isinstance(part, Rows)]
            encoded = encode_parquet(SEGMENT_FLAVOR, pa.concat_tables(rows), b"{}")
            source = CopySource("rows", SEGMENT_FLAVOR, encoded)
            yield from ((source, index) for index in range(len(source.groups)))
        else:
            for part in parts:
                assert isinstance(part, Copy)
                yield from ((entries[part.entry].source, index) for index in range(part.first_group, part.end_group))


def _rows(entries: Sequence[StoredEntry], part: Rows) -> pa.Table:
    return entries[part.entry].records.slice(part.first_row, part.count)


def _spans(plan: TopicPlan, entries: Sequence[StoredEntry]) -> tuple[SegmentSpan, ...]:
    raw_bytes = _raw_bytes(plan, entries)
    return tuple(
        SegmentSpan(number, part.base_offset, part.next_offset - 1, part.records, raw_bytes[place])
        for place, (number, part) in enumerate(plan.partitions.items())
    )


def _raw_bytes(plan: TopicPlan, entries: Sequence[StoredEntry]) -> Sequence[int]:
    """The uncompressed bytes of each partition, in the order of the plan. The parts of a partition are neighbours, and
    count its records."""
    records: list[int] = []
    sizes: list[int] = []
    for part in plan.parts:
        if isinstance(part, Rows):
            records.append(part.count)
            sizes.append(_bytes_of(_rows(entries, part)))
        else:
            groups = entries[part.entry].source.footer.row_groups[part.first_group : part.end_group]
            records.append(sum(group.rows for group in groups))
            sizes.append(sum(group.raw_bytes for group in groups))
    ends = np.cumsum([part.records for part in plan.partitions.values()])
    places = np.searchsorted(ends, np.cumsum(records))
    summed: npt.NDArray[np.int64] = np.zeros(len(ends), np.int64)
    np.add.at(summed, places, sizes)
    return [int(size) for size in summed]


def _bytes_of(rows: pa.Table) -> int:
    return sum(pc.sum(pc.binary_length(rows[name])).as_py() or 0 for name in ("key", "value"))
