"""Writes a run: sorted records go in piece by piece, and become row groups and segments of the right sizes.

    writer = RunWriter(place, shape, flavor, folder)
    writer.write(partition, rows, size_bytes)           # ascending by partition, then by offset
    encoded = writer.finish(entropy, facts)             # the segments of the run; bodies are mapped files

- A row group that comes as it is stored is copied. Others have about `ROW_GROUP_RAW_BYTES`. A partition of
`OWN_ROW_GROUP_BYTES` has row groups of its own, so that
  its readers fetch nothing else. Smaller ones share row groups, which end where a partition ends.
- A segment ends once it has `segment_bytes` as stored, unless less than a fourth of that would be left for the last
  one. It ends before that where a partition begins that fills a good part of a segment by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES, ROW_GROUP_ROWS_MAX, ParquetFlavor
from tidelog.storage.records import STORED_SCHEMA
from tidelog.storage.runtime import Entropy
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.run_merge import StoredRows
from tidelog.storage.upkeep.segment_writer import RunFacts, SegmentWriter

OWN_ROW_GROUP_BYTES = ROW_GROUP_RAW_BYTES // 8
HELD_BYTES_MAX = 2 * ROW_GROUP_RAW_BYTES
"""Records of a partition are held until they have this many bytes, so that each row group has enough."""
CHUNKS_MAX = 16
"""More pieces than this are copied together before they are encoded."""
REST_SHARE = 4
"""The last segment of a run has at least this fraction (one in 4) of `segment_bytes`."""


@dataclass(frozen=True)
class RunShape:
    """What is known of a run before it is written: its records, the raw bytes of each partition, both about."""

    records: int
    raw_bytes: Mapping[int, int]
    segment_bytes: int


class RunWriter:
    """Writes one run. Always `close` it. Not for two threads at once."""

    def __init__(self, place: SegmentPlace, shape: RunShape, flavor: ParquetFlavor, folder: Path) -> None:
        self._place = place
        self._shape = shape
        self._flavor = flavor
        self._folder = folder
        self._partition = -1
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._segments: list[SegmentWriter] = []
        self._is_open = False  # whether the last of `_segments` takes more
        self._records = 0

    def write(self, partition: int, rows: pa.RecordBatch | StoredRows, size_bytes: int) -> None:
        """Append `rows`, which take about `size_bytes`. Raises `Invalid` (they are not in order), `Unavailable` (no
        space)."""
        if partition != self._partition:
            self._begin(partition)
        if isinstance(rows, StoredRows):
            self._write_held()
            self._write_into_segment(rows)
            return
        self._held.append(rows)
        self._held_bytes += size_bytes
        while self._held_bytes >= HELD_BYTES_MAX and self._held_rows > 1:
            self._write_row_group(max(1, self._held_rows * ROW_GROUP_RAW_BYTES // self._held_bytes))

    def finish(self, entropy: Entropy, facts: RunFacts) -> Sequence[EncodedSegment]:
        """The segments of all written records, in order; none without records."""
        self._write_held()
        return [writer.finish(entropy.new_id(), facts) for writer in self._segments]

    def close(self) -> None:
        """Close the files; bodies of finished segments stay readable as long as they are referenced."""
        for writer in self._segments:
            writer.close()

    @property
    def _held_rows(self) -> int:
        return sum(rows.num_rows for rows in self._held)

    def _begin(self, partition: int) -> None:
        raw_bytes = self._shape.raw_bytes.get(partition, 0)
        own = max(raw_bytes, self._shape.raw_bytes.get(self._partition, 0)) >= OWN_ROW_GROUP_BYTES
        if own or self._held_bytes + raw_bytes > ROW_GROUP_RAW_BYTES:
            self._write_held()
            self._end_before(raw_bytes)
        self._partition = partition

    def _write_held(self) -> None:
        """In row groups of equal size."""
        groups = max(round(self._held_bytes / ROW_GROUP_RAW_BYTES), -(-self._held_rows // ROW_GROUP_ROWS_MAX), 1)
        rows = -(-self._held_rows // groups)
        while self._held:
            self._write_row_group(rows)

    def _write_row_group(self, rows: int) -> None:
        held = pa.Table.from_batches(self._held, STORED_SCHEMA)
        self._held = [batch for batch in held.slice(rows).to_batches() if batch.num_rows]
        self._held_bytes = sum(batch.nbytes for batch in self._held)
        records = held.slice(0, rows)
        if records.column(0).num_chunks > CHUNKS_MAX:
            records = records.combine_chunks()
        self._write_into_segment(records)

    def _write_into_segment(self, row_group: pa.Table | StoredRows) -> None:
        if not self._is_open:
            self._segments.append(SegmentWriter(self._place, self._flavor, self._folder))
            self._is_open = True
        self._segments[-1].write(row_group)
        self._records += row_group.num_rows
        self._end_if_full()

    def _end_if_full(self) -> None:
        segment, full_bytes = self._segments[-1], self._shape.segment_bytes
        if segment.size_bytes >= full_bytes:
            rest = (self._shape.records - self._records) * segment.size_bytes / segment.records
            self._is_open = rest * REST_SHARE < full_bytes

    def _end_before(self, raw_bytes: int) -> None:
        """End the segment if it and the partition of `raw_bytes` that comes have half of a segment at least, and more
        than one together."""
        if not self._is_open:
            return
        segment, full_bytes = self._segments[-1], self._shape.segment_bytes
        coming = raw_bytes * segment.size_bytes / max(1, segment.raw_bytes)
        if 2 * min(segment.size_bytes, coming) >= full_bytes and segment.size_bytes + coming > full_bytes:
            self._is_open = False
