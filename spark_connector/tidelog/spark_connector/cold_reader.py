"""Reads a slice of a segment with pyarrow: only the row groups and the rows that the slice and the times ask for.

Runs in Spark's Python workers, several at a time on a machine: batches are bounded in bytes, and pyarrow's own threads
are left off.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tidelog.spark_connector.partition_log import ColdSlice
from tidelog.spark_connector.pruning import Interval
from tidelog.spark_connector.s3_settings import s3_file_system
from tidelog.storage.errors import Corrupt, Denied, Invalid, NotFound

BATCH_BYTES = 8 << 20
BATCH_ROWS_MAX = 32_768
NO_LIMITS = Interval()


class StoreReader:
    """The objects of a store by their keys, read-only. `url` as the broker tells it: ``file:///path`` or
    ``s3://bucket/prefix``; other schemes are `Invalid`."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._url = url
        self._remote = address.scheme == "s3"
        if self._remote:
            self._files: pafs.FileSystem = s3_file_system()
            self._root = f"{address.netloc}/{address.path.strip('/')}".rstrip("/")
        elif address.scheme == "file":
            self._files = pafs.LocalFileSystem()
            self._root = str(Path(unquote(address.path)))
        else:
            raise Invalid(f"{url!r} is no store that can be read directly: file:///PATH or s3://BUCKET/PREFIX")

    def read(
        self, piece: ColdSlice, columns: list[str], timestamps_ms: Interval = NO_LIMITS
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `piece` in order of offsets, without those row groups that have no timestamp in
        `timestamps_ms`. Raises `NotFound` (the object is gone), `Corrupt`, `Denied`."""
        key = piece.segment.key
        try:
            with self._open(key) as segment:
                yield from _rows(segment, piece, columns, timestamps_ms)
        except FileNotFoundError as error:
            raise NotFound(f"{self._url} has no object {key}") from error
        except PermissionError as error:
            raise Denied(f"{self._url} does not let {key} be read: {error}") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise Corrupt(key, f"is not a segment that can be read: {error}") from error

    def _open(self, key: str) -> pq.ParquetFile:
        path = f"{self._root}/{key}"
        # Over a network one request for several columns beats one for each.
        return pq.ParquetFile(path, filesystem=self._files, page_checksum_verification=True, pre_buffer=self._remote)


def _rows(
    segment: pq.ParquetFile, piece: ColdSlice, columns: list[str], timestamps_ms: Interval
) -> Iterator[pa.RecordBatch]:
    offsets = Interval(piece.start, piece.end - 1)
    row_groups = [
        number
        for number in range(segment.metadata.num_row_groups)
        if _may_hold(segment.metadata.row_group(number), "offset", offsets)
        and _may_hold(segment.metadata.row_group(number), "timestamp", timestamps_ms)
    ]
    wanted = columns if piece.whole else list(dict.fromkeys(["offset", *columns]))
    batches = segment.iter_batches(
        batch_size=_batch_rows(segment.metadata), row_groups=row_groups, columns=wanted, use_threads=False
    )
    for batch in batches:
        rows = batch if piece.whole else _between(batch, piece.start, piece.end)
        if rows.num_rows:
            yield rows.select(columns)


def _may_hold(row_group: pq.RowGroupMetaData, column: str, interval: Interval) -> bool:
    if interval == NO_LIMITS:
        return True
    index = next(i for i in range(row_group.num_columns) if row_group.column(i).path_in_schema == column)
    statistics = row_group.column(index).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    low, high = statistics.min_raw, statistics.max_raw  # whole numbers: both columns are int64 in the file
    return low is None or high is None or interval.meets(int(low), int(high))


def _between(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The rows with offsets in ``[start, end)``; offsets ascend, so they are one stretch."""
    offsets = batch.column("offset").to_numpy()
    first, last = np.searchsorted(offsets, [start, end])
    return batch.slice(int(first), int(last - first))


def _batch_rows(metadata: pq.FileMetaData) -> int:
    raw_bytes = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    bytes_per_row = max(1, raw_bytes // max(1, metadata.num_rows))
    return max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // bytes_per_row))
