"""Reads a slice of a segment from the bucket: only the row groups that its pieces and the timestamps ask for.

A segment holds records of many partitions, sorted by (partition, offset). The rows of a piece follow from its span. A
large partition has row groups of its own; small ones share a row group, and then only the rows of the slice are handed
out.

This module reads bytes by pyarrow's file systems and chooses row groups. `tidelog.storage` decodes the object and
checks its checksums. The code runs in Spark's Python workers, several at a time on a machine. Therefore only one run of
neighbouring row groups is in memory at a time, and pyarrow's own threads are not used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidelog.spark_connector.reads.arrow_reads import store_errors
from tidelog.spark_connector.reads.pruning import Interval
from tidelog.spark_connector.reads.slices import ColdSlice, Piece
from tidelog.storage.errors import Corrupt, NotFound, Unavailable
from tidelog.storage.layout import shard_segment_id
from tidelog.storage.parquet.parquet_format import TAIL_BYTES, Footer, RowGroup, decode_footer, footer_bytes
from tidelog.storage.parquet.row_decoding import decode_rows
from tidelog.storage.segments.topic_segment import (
    SEGMENT_FLAVOR,
    decode_place,
    max_timestamp_ms,
    min_timestamp_ms,
)
from tidelog.storage.stores.arrow_files import arrow_files

FOOTER_GUESS_BYTES = 64 * 1024
"""Read first from the end of an object. Most footers are shorter, so they need no second request."""

STRETCH_RAW_BYTES = 16 << 20
"""Neighbouring row groups are read and decoded together up to about this many bytes of records."""

SLICES_MAX = 8
"""Rows of a stretch that form more runs than this are picked by a mask, as one batch, instead of run by run."""

_OFFSET = SEGMENT_FLAVOR.statistics.index("offset")

PLACE = ("partition", "offset")
"""The columns that every batch has."""


class StoreReader:
    """Reads segments of a store by their keys. `url` is the store's URL from the broker: ``file:///path`` or
    ``s3://bucket/prefix``. Raises `Invalid` for other schemes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._root = arrow_files(url)

    def read(self, wanted: ColdSlice, columns: Sequence[str], timestamps_ms: Interval) -> Iterator[pa.RecordBatch]:
        """The rows of `wanted` by partition and offset, with `PLACE` and `columns`, without the row groups that have no
        timestamp in `timestamps_ms`. Raises `NotFound` (the object is gone), `Corrupt`, `Denied`, `Unavailable`."""
        key = wanted.segment.key
        with self._opened(key) as file:
            yield from _rows(key, file, wanted, columns, timestamps_ms)

    def check(self, key: str) -> None:
        """Open a segment and read nothing of it. A segment that is gone is none of this check's business, if the store
        itself is there. Raises `Denied`, `Unavailable`."""
        try:
            with self._opened(key):
                pass
        except NotFound:
            if self._url.startswith("file:") and not Path(self._root).is_dir():
                raise Unavailable(f"there is no folder {self._root}") from None

    @contextmanager
    def _opened(self, key: str) -> Iterator[pa.NativeFile]:
        with store_errors(self._url, key), self._files.open_input_file(f"{self._root}/{key}") as file:
            yield file


@dataclass(frozen=True)
class _Rows:
    """Rows ``[first, end)`` of row group `group` may belong to `piece`."""

    group: RowGroup
    first: int
    end: int
    piece: Piece


def _rows(
    key: str, file: pa.NativeFile, wanted: ColdSlice, columns: Sequence[str], timestamps_ms: Interval
) -> Iterator[pa.RecordBatch]:
    footer = _footer(key, file)
    _check_pieces(key, footer, wanted)
    chosen = _chosen(footer, wanted, timestamps_ms)
    groups = {rows.group.index: rows.group for rows in chosen}
    for stretch in stretches(list(groups.values())):
        data = _range(file, stretch[0].start, stretch[-1].end)
        names = list(dict.fromkeys([*PLACE, *columns]))
        table = decode_rows(key, SEGMENT_FLAVOR, footer, stretch, memoryview(data), names)
        first_rows = dict(zip((group.index for group in stretch), _starts(stretch), strict=True))
        yield from _picked(table, [rows for rows in chosen if rows.group.index in first_rows], first_rows).to_batches()


def _footer(key: str, file: pa.NativeFile) -> Footer:
    size = file.size()
    tail = _range(file, max(0, size - FOOTER_GUESS_BYTES), size)
    needed = footer_bytes(key, tail[-TAIL_BYTES:])
    if needed > size:
        raise Corrupt(key, f"its footer would take {needed} of its {size} bytes: it is damaged")
    if needed > len(tail):
        tail = _range(file, size - needed, size)
    return decode_footer(key, SEGMENT_FLAVOR, tail, size)


def _range(file: pa.NativeFile, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _check_pieces(key: str, footer: Footer, wanted: ColdSlice) -> None:
    """Raises `Corrupt` unless the segment is what its key says, and has the spans of the pieces."""
    place, spans = decode_place(key, footer)
    if place.key(shard_segment_id(key)) != key:
        raise Corrupt(key, "it belongs to another topic or shard than its name says")
    rows = (0, *accumulate(span[3] for span in spans))
    stated = {span[0]: (*span, first_row) for span, first_row in zip(spans, rows, strict=False)}
    for span in (piece.span for piece in wanted.pieces):
        asked = (span.partition, span.base_offset, span.last_offset, span.records, span.first_row)
        if stated.get(span.partition) != asked:
            raise Corrupt(key, f"it has other records of partition {span.partition} than its manifest says")


def _chosen(footer: Footer, wanted: ColdSlice, timestamps_ms: Interval) -> list[_Rows]:
    """The rows that may belong to the slice, in order."""
    starts = _starts(footer.row_groups)
    timely = [
        timestamps_ms.meets(min_timestamp_ms((group,)), max_timestamp_ms((group,))) for group in footer.row_groups
    ]
    return [
        rows
        for piece in wanted.pieces
        for rows in _rows_of(footer.row_groups, starts, piece)
        if timely[rows.group.index]
    ]


def _starts(groups: Sequence[RowGroup]) -> list[int]:
    """The first row of each row group."""
    return [0, *accumulate(group.rows for group in groups)][:-1]


def _rows_of(groups: Sequence[RowGroup], starts: Sequence[int], piece: Piece) -> Iterator[_Rows]:
    span = piece.span
    end_row = span.first_row + span.records
    for at in range(bisect_right(starts, span.first_row) - 1, len(groups)):
        first, end = max(span.first_row, starts[at]), min(end_row, starts[at] + groups[at].rows)
        if first >= end_row:
            return
        if Interval(piece.start, piece.end - 1).meets(*_offset_limits(groups[at], piece, first, end)):
            yield _Rows(groups[at], first - starts[at], end - starts[at], piece)


def _offset_limits(group: RowGroup, piece: Piece, first: int, end: int) -> tuple[int, int]:
    """The least and greatest offset that rows ``[first, end)`` of the segment may have. They lie in `group` and belong
    to the piece's span. Statistics count only for a row group of one partition; otherwise offsets ascend, so n rows
    behind offset o an offset is at least o + n."""
    span = piece.span
    if end - first == group.rows:
        return group.bounds[_OFFSET]
    before, behind = first - span.first_row, span.first_row + span.records - end
    return span.base_offset + before, span.last_offset - behind


def stretches(groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
    """Neighbouring row groups in one list, up to `STRETCH_RAW_BYTES`. One request reads each list."""
    stretch: list[RowGroup] = []
    raw_bytes = 0
    for group in groups:
        if stretch and (group.start != stretch[-1].end or raw_bytes + group.raw_bytes > STRETCH_RAW_BYTES):
            yield stretch
            stretch, raw_bytes = [], 0
        stretch.append(group)
        raw_bytes += group.raw_bytes
    if stretch:
        yield stretch


def _picked(table: pa.Table, chosen: Sequence[_Rows], first_rows: dict[int, int]) -> pa.Table:
    """The rows of `table` that belong to the slice. Row group n begins at row `first_rows[n]`."""
    offsets = table["offset"].to_numpy()
    runs: list[tuple[int, int]] = []
    for rows in chosen:
        first, end = (first_rows[rows.group.index] + row for row in (rows.first, rows.end))
        if not rows.piece.whole:  # offsets ascend within a span, so the wanted rows are consecutive
            low, high = np.searchsorted(offsets[first:end], [rows.piece.start, rows.piece.end])
            first, end = first + int(low), first + int(high)
        if runs and runs[-1][1] == first:
            runs[-1] = runs[-1][0], end
        elif first < end:
            runs.append((first, end))
    if len(runs) > SLICES_MAX:
        return table.filter(_mask(table.num_rows, runs))
    return pa.concat_tables([table.slice(first, end - first) for first, end in runs] or [table.slice(0, 0)])


def _mask(rows: int, runs: Sequence[tuple[int, int]]) -> pa.BooleanArray:
    steps = np.zeros(rows + 1, np.int8)
    for first, end in runs:
        steps[first] += 1
        steps[end] -= 1
    return pa.array(np.cumsum(steps[:-1], dtype=np.int8) > 0)
