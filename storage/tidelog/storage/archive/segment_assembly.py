"""Makes the segment of a plan: row groups of WAL entries are copied, and the rows between them are encoded again.

All entries of a pass are in memory as they are stored. `row_encoding` makes the row groups that cannot be copied. It
takes CPU time, so it runs in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from tidelog.storage.archive.row_encoding import encoded_runs
from tidelog.storage.archive.topic_plan import Piece, TopicPlan
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
    runs = [list(run) for _, run in groupby(plan.pieces, lambda piece: piece.groups is None)]
    encoded = iter(encoded_runs(entries, [run for run in runs if run[0].groups is None]))
    for run in runs:
        raw_bytes += next(encoded).added_to(copier) if run[0].groups is None else _copy(copier, entries, run)
    groups = copier.row_groups
    spans = _spans(plan, iter(raw_bytes))
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


def _copy(copier: RowGroupCopier, entries: Sequence[StoredEntry], pieces: Sequence[Piece]) -> Sequence[int]:
    """Copy the row groups of `pieces`, and return the uncompressed bytes of each."""
    raw_bytes = []
    for piece in pieces:
        assert piece.groups is not None, "the piece is copied"
        source = entries[piece.entry].source
        for index in piece.groups:
            copier.add(source, index)
        raw_bytes.append(sum(source.footer.row_groups[index].raw_bytes for index in piece.groups))
    return raw_bytes


def _spans(plan: TopicPlan, raw_bytes: Iterator[int]) -> tuple[SegmentSpan, ...]:
    """The spans of the segment, whose pieces have `raw_bytes`."""
    return tuple(
        SegmentSpan(
            number, part.base_offset, part.next_offset - 1, part.records, sum(islice(raw_bytes, len(part.pieces)))
        )
        for number, part in plan.partitions.items()
    )
