"""Writes a segment of any size in bounded memory: records go in as tables, and become row groups of a file.

    writer = SegmentWriter(topic, topic_partition, flavor, folder)
    writer.write(records)                               # RECORD_SCHEMA, offsets ascending over all calls
    encoded = writer.finish(segment_id)                 # its body is a mapped file

A store takes an object's body as a whole, and a final segment has `segment.bytes`, 128 MiB by default: more than a
broker should hold in memory, and a topic may set more. So the body is written to a spill file and mapped, and the
upload reads it from there. The system's page cache holds as much of it as there is free memory.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Invalid
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.parquet.parquet_encoder import ParquetEncoder, fill_in_checksums
from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES, ParquetFlavor
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.storage.segments.segment_codec import EncodedSegment, encode_segment_header, name_segment, raw_bytes_of
from tidelog.storage.upkeep.spill_file import SpillFile

ROW_GROUP_RAW_BYTES_MAX = 2 * ROW_GROUP_RAW_BYTES
"""Records are held until they have this many bytes, so that every row group has at least `ROW_GROUP_RAW_BYTES`, unless
it is the only one."""


class SegmentWriter:
    """Writes one segment. Always `close` it, finished or not. Not for two threads at once."""

    def __init__(self, topic: str, topic_partition: TopicPartition, flavor: ParquetFlavor, folder: Path) -> None:
        self._place = topic, topic_partition
        self._flavor = flavor
        self._file = SpillFile(folder)
        self._sink = pa.PythonFile(cast(io.IOBase, _SpillSink(self._file)), mode="w")
        self._encoder: ParquetEncoder | None = None
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._tally = _Tally()

    def write(self, records: pa.Table) -> None:
        """Append `records`. Raises `Invalid` (offsets that do not ascend), `Unavailable` (no space for the file)."""
        if records.num_rows == 0:
            return
        self._tally.add(records)
        self._held.append(records)
        self._held_bytes += records.nbytes
        while self._held_bytes >= ROW_GROUP_RAW_BYTES_MAX:
            self._write_row_group(ROW_GROUP_RAW_BYTES)

    def finish(self, segment_id: str) -> EncodedSegment:
        """The segment of all written records, at least one."""
        if self._held_bytes:
            self._write_row_group(self._held_bytes)
        if self._encoder is None:
            raise Invalid("a segment holds at least one record")
        offsets = self._tally.base_offset, self._tally.last_offset
        ends = self._encoder.close(encode_segment_header(*self._place, *offsets, self._tally.records))
        self._sink.flush()
        body = memoryview(self._file.mapped(alterable=True))
        fill_in_checksums(body, ends)
        segment = Segment(
            key=name_segment(*self._place, *offsets, segment_id),
            base_offset=self._tally.base_offset,
            last_offset=self._tally.last_offset,
            records=self._tally.records,
            size_bytes=len(body),
            min_timestamp_ms=self._tally.min_timestamp_ms,
            max_timestamp_ms=self._tally.max_timestamp_ms,
            sha256=hashlib.sha256(body).hexdigest(),
            raw_bytes=self._tally.raw_bytes,
        )
        return EncodedSegment(segment, body.toreadonly())

    def close(self) -> None:
        """Close the file; the body of a finished segment stays readable as long as it is referenced."""
        self._file.close()

    def _write_row_group(self, about_bytes: int) -> None:
        records = pa.concat_tables(self._held)
        rows = max(1, round(records.num_rows * about_bytes / self._held_bytes))
        row_group, rest = records.slice(0, rows).combine_chunks(), records.slice(rows)
        self._held = [rest] if rest.num_rows else []
        self._held_bytes = rest.nbytes
        if self._encoder is None:
            self._encoder = ParquetEncoder(self._flavor, row_group, self._sink)
        self._encoder.write(row_group)


class _Tally:
    """The totals of the written records, for the manifest."""

    def __init__(self) -> None:
        self.base_offset = -1
        self.last_offset = -1
        self.records = 0
        self.raw_bytes = 0
        self.min_timestamp_ms = 2**63 - 1
        self.max_timestamp_ms = -(2**63)

    def add(self, records: pa.Table) -> None:
        first, last = records["offset"][0].as_py(), records["offset"][-1].as_py()
        if not records.schema.equals(RECORD_SCHEMA) or first <= self.last_offset:
            raise Invalid(f"records from offset {first} on do not follow offset {self.last_offset} in a segment")
        bounds = pc.min_max(records["timestamp"].cast(pa.int64()))
        self.base_offset = first if self.records == 0 else self.base_offset
        self.last_offset = last
        self.records += records.num_rows
        self.raw_bytes += raw_bytes_of(records)
        self.min_timestamp_ms = min(self.min_timestamp_ms, bounds["min"].as_py())
        self.max_timestamp_ms = max(self.max_timestamp_ms, bounds["max"].as_py())


class _SpillSink:
    """The part of Python's file interface that Arrow needs to write."""

    closed = False

    def __init__(self, file: SpillFile) -> None:
        self._file = file
        self._written = 0

    def write(self, data: bytes) -> int:
        self._file.write(memoryview(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The file is its owner's."""
