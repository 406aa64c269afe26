"""Where the row groups of a WAL entry end, so that the archiver can copy them into segments as they are.

A segment holds one topic. So a topic with `TOPIC_BYTES` or more in an entry has row groups of its own there, and within
it a partition with `PARTITION_BYTES` or more has its own, too. Smaller ones share a row group with their neighbours,
because each row group takes some 600 bytes of the footer and a page for each column. The archiver decodes a row group
of several topics; such row groups are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.parquet.parquet_flavor import ROW_GROUP_RAW_BYTES, ROW_GROUP_ROWS_MAX
from tidelog.storage.wal.wal_entry import Span

TOPIC_BYTES = 64 * 1024
PARTITION_BYTES = 256 * 1024


def row_group_ends(spans: Sequence[Span], records: pa.Table) -> Sequence[int]:
    """The row before which each row group ends, ascending; the last is the number of rows."""
    if records.num_rows == 0:
        return []
    if records.nbytes < 2 * TOPIC_BYTES or (len(spans) == 1 and records.nbytes < ROW_GROUP_RAW_BYTES):
        return [records.num_rows]
    bytes_before = _bytes_before(records)
    ends = list(_ends(spans, bytes_before))
    return [end for first, last in zip([0, *ends], ends, strict=False) for end in _cut(first, last, bytes_before)]


def _bytes_before(records: pa.Table) -> npt.NDArray[np.int64]:
    """The bytes of keys and values in all rows before each row, and at the end those of all rows."""
    lengths = [pc.fill_null(pc.binary_length(records[name]), 0).to_numpy() for name in ("key", "value")]
    return np.concatenate([[0], np.cumsum(lengths[0].astype(np.int64) + lengths[1])])


def _ends(spans: Sequence[Span], bytes_before: npt.NDArray[np.int64]) -> Iterator[int]:
    """The ends between topics and partitions."""
    begun = end = 0  # where the open row group of small topics begins
    for _, group in groupby(spans, key=lambda span: span.topic_partition.topic_id):
        of_topic = list(group)
        start, end = of_topic[0].first_row, of_topic[-1].first_row + of_topic[-1].count
        if bytes_before[end] - bytes_before[start] >= TOPIC_BYTES:
            if start > begun:
                yield start
            yield from _partition_ends(of_topic, bytes_before)
            begun = end
    if end > begun:
        yield end


def _partition_ends(spans: Sequence[Span], bytes_before: npt.NDArray[np.int64]) -> Iterator[int]:
    """The ends within the spans of one large topic; the last is the topic's."""
    begun = spans[0].first_row
    for span in spans:
        end = span.first_row + span.count
        if bytes_before[end] - bytes_before[span.first_row] >= PARTITION_BYTES and span.first_row > begun:
            yield span.first_row
            begun = span.first_row
        if bytes_before[end] - bytes_before[begun] >= PARTITION_BYTES:
            yield end
            begun = end
    if end > begun:
        yield end


def _cut(first: int, end: int, bytes_before: npt.NDArray[np.int64]) -> Iterator[int]:
    """The ends of row groups of about `ROW_GROUP_RAW_BYTES` each in the rows ``[first, end)``."""
    raw_bytes = int(bytes_before[end] - bytes_before[first])
    groups = max(1, round(raw_bytes / ROW_GROUP_RAW_BYTES), -(-(end - first) // ROW_GROUP_ROWS_MAX))
    rows = -(-(end - first) // groups)
    yield from (min(end, at + rows) for at in range(first, end, rows))
