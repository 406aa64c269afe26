"""What Tidelog's Parquet is made with: the settings measured best, and what is decided anew for each object.

zstd; no dictionary for keys and values; numbers as packed differences; page checksums; statistics where a reader
prunes by them. How values are written, and at which level they are compressed, is decided by looking at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS_MAX = 1_000_000
ROW_GROUP_RAW_BYTES = 8 * 1024 * 1024
"""Row groups are cut at about so many bytes of raw records: what one read from the middle has to fetch and decode."""

SAMPLE_BYTES = 512 * 1024
"""Of values, to choose a compression level by."""
SAVING_MIN = 0.04
"""What a costlier level has to save of the cheapest one's bytes."""
SHORT_VALUE_BYTES = 256
"""Values below this on average are written lengths first, bytes after: smaller, and a quarter less work at 100 bytes.
Larger ones compress as well with their lengths between them, at a little less work."""

_DELTA_COLUMNS = ("partition", "offset", "timestamp")


@dataclass(frozen=True)
class ParquetFlavor:
    """What differs between WAL entries and segments. Of several `zstd_levels`, the cheapest first, a later one is taken
    where it makes a sample of the values smaller by `SAVING_MIN`: 5 takes four times the work of 1, and on JSON events
    8 % of the bytes away, on random text none. `lengths_first` writes all values so, which takes some 2 % of the bytes
    away, not only short ones."""

    name: str
    schema: pa.Schema
    zstd_levels: tuple[int, ...]
    lengths_first: bool
    statistics: tuple[str, ...]


def row_group_rows(table: pa.Table) -> int:
    """Rows a row group of `table` takes so that it has about `ROW_GROUP_RAW_BYTES`, evenly spread."""
    groups = max(1, round(table.nbytes / ROW_GROUP_RAW_BYTES), -(-table.num_rows // ROW_GROUP_ROWS_MAX))
    return max(1, -(-table.num_rows // groups))


def open_writer(flavor: ParquetFlavor, table: pa.Table, sink: pa.BufferOutputStream) -> pq.ParquetWriter:
    """A writer of `table` into `sink`, with the settings of `flavor`."""
    encodings = {name: "DELTA_BINARY_PACKED" for name in _DELTA_COLUMNS if name in table.column_names}
    values = table.column("value")
    if flavor.lengths_first or values.nbytes < SHORT_VALUE_BYTES * len(values):
        encodings["value"] = "DELTA_LENGTH_BYTE_ARRAY"
    settings: dict[str, Any] = {  # the stubs know fewer types than the writer takes
        "use_dictionary": ["topic_id"] if "topic_id" in table.column_names else False,
        "column_encoding": encodings,
        "write_statistics": list(flavor.statistics),
    }
    return pq.ParquetWriter(
        sink,
        table.schema,
        version="2.6",
        compression="zstd",
        compression_level=_zstd_level(flavor.zstd_levels, values),
        write_page_checksum=True,
        store_schema=False,
        **settings,
    )


def _zstd_level(levels: Sequence[int], values: pa.ChunkedArray[Any]) -> int:
    """The one of `levels` that a sample from the middle of `values` says is worth its work."""
    if len(levels) == 1 or not len(values):
        return levels[0]
    rows = max(1, SAMPLE_BYTES * len(values) // max(1, values.nbytes))
    sample = pa.concat_arrays(values.slice(max(0, (len(values) - rows) // 2), rows).chunks)
    sizes = {level: _compressed_bytes(sample, level) for level in levels}
    smallest = min(levels, key=sizes.__getitem__)
    return smallest if sizes[smallest] <= (1 - SAVING_MIN) * sizes[levels[0]] else levels[0]


def _compressed_bytes(sample: pa.Array[Any], level: int) -> int:
    data = sample.buffers()[2]
    return 0 if data is None else len(pa.Codec("zstd", level).compress(data))
