"""Reads a slice of a segment from the bucket: only the row groups that the slice and the timestamps ask for.

This module reads bytes by pyarrow's file systems and chooses row groups. `tidelog.storage` decodes the object and
checks its checksums. The code runs in Spark's Python workers, several at a time on a machine. Therefore only one run of
neighbouring row groups is in memory at a time, and pyarrow's own threads are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidelog.spark_connector.pruning import Interval
from tidelog.spark_connector.slices import ColdSlice
from tidelog.storage.errors import Corrupt, Denied, NotFound, Unavailable
from tidelog.storage.parquet.parquet_format import TAIL_BYTES, Footer, RowGroup, decode_rows, footer_bytes
from tidelog.storage.segments.segment_codec import SEGMENT_FLAVOR, decode_segment_footer
from tidelog.storage.stores.arrow_files import arrow_files

FOOTER_GUESS_BYTES = 64 * 1024
"""Read first from the end of an object. Most footers are shorter, so they need no second request."""

STRETCH_RAW_BYTES = 16 << 20
"""Neighbouring row groups are read and decoded together up to about this many bytes of records."""


class StoreReader:
    """Reads segments of a store by their keys. `url` is the store's URL from the broker: ``file:///path`` or
    ``s3://bucket/prefix``. Raises `Invalid` for other schemes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._root = arrow_files(url)

    def read(self, piece: ColdSlice, columns: Sequence[str], timestamps_ms: Interval) -> Iterator[pa.RecordBatch]:
        """The rows of `piece` in the order of offsets, without the row groups that have no timestamp in
        `timestamps_ms`. Raises `NotFound` (the object is gone), `Corrupt`, `Denied`, `Unavailable`."""
        key = piece.segment.key
        try:
            with self._files.open_input_file(f"{self._root}/{key}") as file:
                yield from _rows(key, file, piece, columns, timestamps_ms)
        except FileNotFoundError as error:
            raise NotFound(f"{self._url} has no object {key}") from error
        except PermissionError as error:
            raise Denied(f"{self._url} does not let {key} be read: {error}") from error
        except OSError as error:
            # pyarrow reports S3's refusals only in the text of the error.
            kind = Denied if "ACCESS_DENIED" in str(error) else Unavailable
            raise kind(f"{self._url} did not give {key}: {error}") from error


def _rows(
    key: str, file: pa.NativeFile, piece: ColdSlice, columns: Sequence[str], timestamps_ms: Interval
) -> Iterator[pa.RecordBatch]:
    footer = _footer(key, file)
    wanted = columns if piece.whole else list(dict.fromkeys(["offset", *columns]))
    for groups in stretches(_row_groups(footer, piece, timestamps_ms)):
        data = _range(file, groups[0].start, groups[-1].end)
        table = decode_rows(key, SEGMENT_FLAVOR, footer, groups, memoryview(data), wanted)
        rows = table if piece.whole else _between(table, piece.start, piece.end)
        yield from rows.select(list(columns)).to_batches()


def _footer(key: str, file: pa.NativeFile) -> Footer:
    size = file.size()
    tail = _range(file, max(0, size - FOOTER_GUESS_BYTES), size)
    needed = footer_bytes(key, tail[-TAIL_BYTES:])
    if needed > size:
        raise Corrupt(key, f"its footer would take {needed} of its {size} bytes: it is damaged")
    if needed > len(tail):
        tail = _range(file, size - needed, size)
    return decode_segment_footer(key, tail, size)


def _range(file: pa.NativeFile, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _row_groups(footer: Footer, piece: ColdSlice, timestamps_ms: Interval) -> list[RowGroup]:
    offsets = Interval(piece.start, piece.end - 1)
    return [
        group
        for group in footer.row_groups
        if _may_hold(footer, group, "offset", offsets) and _may_hold(footer, group, "timestamp", timestamps_ms)
    ]


def _may_hold(footer: Footer, group: RowGroup, column: str, interval: Interval) -> bool:
    statistics = footer.metadata.row_group(group.index).column(SEGMENT_FLAVOR.schema.get_field_index(column)).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    low, high = statistics.min_raw, statistics.max_raw  # whole numbers: both columns are int64 in the file
    return low is None or high is None or interval.meets(int(low), int(high))


def stretches(groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
    """Neighbouring row groups in one list, up to `STRETCH_RAW_BYTES`. One request reads each list."""
    stretch: list[RowGroup] = []
    for group in groups:
        raw_bytes = sum(member.raw_bytes for member in stretch) + group.raw_bytes
        if stretch and (group.start != stretch[-1].end or raw_bytes > STRETCH_RAW_BYTES):
            yield stretch
            stretch = []
        stretch.append(group)
    if stretch:
        yield stretch


def _between(rows: pa.Table, start: int, end: int) -> pa.Table:
    """The rows with offsets in ``[start, end)``. Offsets ascend, so these rows are consecutive."""
    first, last = np.searchsorted(rows["offset"].to_numpy(), [start, end])
    return rows.slice(int(first), int(last - first))
