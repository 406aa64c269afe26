"""Writes a segment of any size in bounded memory: tables go in, and each becomes a row group of a file. Row groups of
other segments are copied as they are stored.

    writer = SegmentWriter(place, flavor, folder)
    writer.write(records)                               # STORED_SCHEMA, sorted by (partition, offset) over all calls
    encoded = writer.finish(segment_id, facts)          # its body is a mapped file

A store takes an object's body as a whole, and a final segment has `segment.bytes`, 128 MiB by default: more than a
broker should hold in memory, and a topic may set more. So the body is written to a spill file and mapped, and the
upload reads it from there. The system's page cache holds as much of it as there is free memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Invalid
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.row_group_copy import RowGroupCopier
from tidelog.storage.segments.topic_segment import (
    SegmentPlace,
    encode_header,
    max_timestamp_ms,
    min_timestamp_ms,
    order_fault,
    sha256_of,
    stored_span,
)
from tidelog.storage.upkeep.run_merge import StoredRows
from tidelog.storage.upkeep.spill_file import SpillFile


@dataclass(frozen=True)
class RunFacts:
    """What the segments of a run have in common."""

    run: int
    level: int
    archived_at_ms: int


class SegmentWriter:
    """Writes one segment. Always `close` it, finished or not. Not for two threads at once."""

    def __init__(self, place: SegmentPlace, flavor: ParquetFlavor, folder: Path) -> None:
        self._place = place
        self._file = SpillFile(folder)
        self._body = RowGroupCopier(flavor, self._file.write)
        self._spans: list[SegmentSpan] = []
        self._times_ms: list[int] = []
        self.records = 0
        self.raw_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What was written so far."""
        return self._file.tell()

    def write(self, row_group: pa.Table | StoredRows) -> None:
        """Append a row group, of at least one record. Raises `Invalid` (they are not in order), `Unavailable` (no space
        for the file)."""
        if isinstance(row_group, StoredRows):
            groups = [row_group.group]
            self._add([stored_span(row_group.group)], min_timestamp_ms(groups), max_timestamp_ms(groups))
            self._body.add(row_group.source, row_group.group.index, row_group.data)
            return
        spans = spans_in(row_group)
        if fault := order_fault(spans, row_group):
            raise Invalid(f"records from {spans[0]} on are not those of a segment: {fault}")
        bounds = pc.min_max(row_group["timestamp"].cast(pa.int64()))
        self._add(spans, bounds["min"].as_py() // 1_000, bounds["max"].as_py() // 1_000)
        self._body.write(row_group)

    def _add(self, spans: Sequence[SegmentSpan], min_ms: int, max_ms: int) -> None:
        if self._spans and not _follows(self._spans[-1], spans[0]):
            raise Invalid(f"records from {spans[0]} on do not follow those before in a segment")
        self._times_ms += [min_ms, max_ms]
        self._spans[-1:] = joined((*self._spans[-1:], spans[0]))
        self._spans += spans[1:]
        self.records += sum(span.records for span in spans)
        self.raw_bytes += sum(span.raw_bytes for span in spans)

    def finish(self, segment_id: str, facts: RunFacts) -> EncodedSegment:
        """The segment of all written records, at least one."""
        if not self._spans:
            raise Invalid("a segment holds at least one record")
        self._body.close(encode_header(self._place, self._spans))
        body = memoryview(self._file.mapped())
        segment = TopicSegment(
            key=self._place.key(segment_id),
            run=facts.run,
            level=facts.level,
            size_bytes=len(body),
            sha256=sha256_of(body),
            min_timestamp_ms=min(self._times_ms),
            max_timestamp_ms=max(self._times_ms),
            archived_at_ms=facts.archived_at_ms,
            spans=tuple(self._spans),
        )
        return EncodedSegment(self._place.topic_id, segment, body)

    def close(self) -> None:
        """Close the file; the body of a finished segment stays readable as long as it is referenced."""
        self._file.close()


def spans_in(records: pa.Table) -> Sequence[SegmentSpan]:
    """The spans of rows that are sorted by partition."""
    partitions = records["partition"].to_numpy()
    edges = np.concatenate(([0], np.flatnonzero(np.diff(partitions)) + 1, [len(partitions)]))
    starts, counts = edges[:-1], np.diff(edges)
    offsets = records["offset"].to_numpy()
    sizes = np.add.reduceat(_raw_bytes(records), starts)
    columns = (partitions[starts], offsets[starts], offsets[edges[1:] - 1], counts, sizes)
    return [SegmentSpan(*facts) for facts in zip(*(column.tolist() for column in columns), strict=True)]


def joined(spans: Iterable[SegmentSpan]) -> list[SegmentSpan]:
    """`spans`, ordered by (partition, offset), as one for each partition."""
    return [_join(list(parts)) for _, parts in groupby(spans, attrgetter("partition"))]


def _join(parts: Sequence[SegmentSpan]) -> SegmentSpan:
    if len(parts) == 1:
        return parts[0]
    return SegmentSpan(
        parts[0].partition,
        parts[0].base_offset,
        parts[-1].last_offset,
        sum(part.records for part in parts),
        sum(part.raw_bytes for part in parts),
    )


def _follows(before: SegmentSpan, span: SegmentSpan) -> bool:
    return (before.partition, before.last_offset) < (span.partition, span.base_offset)


def _raw_bytes(records: pa.Table) -> npt.NDArray[np.int64]:
    """The bytes of each record's key and value."""
    lengths = (pc.fill_null(pc.binary_length(records[name]), 0).to_numpy() for name in ("key", "value"))
    return cast(npt.NDArray[np.int64], sum(length.astype(np.int64) for length in lengths))
