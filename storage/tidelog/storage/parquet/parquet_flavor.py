"""What Tidelog's Parquet is made with: the settings measured best, and what is decided anew for each object.

zstd; numbers as packed differences; page checksums; statistics where a reader prunes by them, of row groups and of
pages. Whether keys or values take a dictionary, how values are written, and at which level they are compressed, is
decided by looking at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROW_GROUP_ROWS_MAX = 1_000_000
ROW_GROUP_RAW_BYTES = 8 * 1024 * 1024
"""Row groups are cut at about so many bytes of raw records: what one read from the middle has to fetch and decode."""

SAMPLE_BYTES = 512 * 1024
"""Of values, to choose a compression level by."""
SAVING_MIN = 0.04
"""What a costlier level, or a dictionary, has to save of the cheapest one's bytes."""
DISTINCT_SAMPLE_ROWS = 1_000
"""Of these, half at most may be distinct, else a dictionary is not even tried: keys that seldom repeat."""
BLOOM_FALSE_POSITIVES = 0.01
"""Of keys that a row group lacks, so many seem to be in it: 10 bits a distinct key."""
SHORT_VALUE_BYTES = 256
"""Values below this on average are written lengths first, bytes after: smaller, and a quarter less work at 100 bytes.
Larger ones compress as well with their lengths between them, at a little less work."""

_DELTA_COLUMNS = ("partition", "offset", "timestamp")


@dataclass(frozen=True)
class ParquetFlavor:
    """What differs between WAL entries and segments. Of several `zstd_levels`, the cheapest first, a later one is taken
    where it makes a sample of the values smaller by `SAVING_MIN`: 5 takes four times the work of 1, and on JSON events
    8 % of the bytes away, on random text none. `lengths_first` writes all values so, which takes some 2 % of the bytes
    away, not only short ones. `page_index` writes statistics of pages too, and where they are; `dictionary_columns` may
    have a dictionary where it saves `SAVING_MIN`; `bloom_column` has a bloom filter. With fewer than `plain_bytes` of
    values an object is not compressed."""

    name: str
    schema: pa.Schema
    zstd_levels: tuple[int, ...]
    lengths_first: bool
    statistics: tuple[str, ...]
    page_index: bool = False
    dictionary_columns: tuple[str, ...] = ()
    bloom_column: str | None = None
    plain_bytes: int = 0

    @property
    def has_index(self) -> bool:
        """Whether anything lies between the row groups and the footer."""
        return self.page_index or self.bloom_column is not None


def row_group_rows(table: pa.Table) -> int:
    """Rows a row group of `table` takes so that it has about `ROW_GROUP_RAW_BYTES`, evenly spread."""
    groups = max(1, round(table.nbytes / ROW_GROUP_RAW_BYTES), -(-table.num_rows // ROW_GROUP_ROWS_MAX))
    return max(1, -(-table.num_rows // groups))


def open_writer(flavor: ParquetFlavor, like: pa.Table, sink: pa.NativeFile) -> pq.ParquetWriter:
    """A writer into `sink` of row groups as `like`, the first one, with the settings of `flavor`."""
    values = like.column("value")
    level = _zstd_level(flavor.zstd_levels, values)
    dictionaries = [name for name in flavor.dictionary_columns if _dictionary_pays(like.select([name]), level)]
    if "topic_id" in like.column_names:
        dictionaries.append("topic_id")
    encodings = {name: "DELTA_BINARY_PACKED" for name in _DELTA_COLUMNS if name in like.column_names}
    value_bytes = values.nbytes
    if "value" not in dictionaries and (flavor.lengths_first or value_bytes < SHORT_VALUE_BYTES * len(values)):
        encodings["value"] = "DELTA_LENGTH_BYTE_ARRAY"
    plain = value_bytes < flavor.plain_bytes
    settings: dict[str, Any] = {  # the stubs know fewer types than the writer takes
        "use_dictionary": dictionaries or False,
        "column_encoding": encodings,
        "write_statistics": list(flavor.statistics),
        "write_page_index": flavor.page_index,
        "bloom_filter_options": _bloom_filter(flavor, like),
    }
    return pq.ParquetWriter(
        sink,
        like.schema,
        version="2.6",
        compression="none" if plain else "zstd",
        compression_level=None if plain else level,
        write_page_checksum=True,
        store_schema=False,
        **settings,
    )


def _bloom_filter(flavor: ParquetFlavor, like: pa.Table) -> dict[str, dict[str, float]] | None:
    """As large as the first row group's distinct values want it."""
    if flavor.bloom_column is None:
        return None
    distinct = pc.count_distinct(like.column(flavor.bloom_column)).as_py()
    return {flavor.bloom_column: {"ndv": max(1, distinct), "fpp": BLOOM_FALSE_POSITIVES}}


def _dictionary_pays(column: pa.Table, level: int) -> bool:
    """Whether a dictionary makes this one column of a row group smaller, zstd and all. Found out by writing it both
    ways, unless a few rows show already that it cannot."""
    few = column.column(0).slice(0, DISTINCT_SAMPLE_ROWS)
    if few.null_count == len(few) or pc.count_distinct(few).as_py() > len(few) // 2:
        return False
    plain, dictionary = (_column_bytes(column, level, use_dictionary) for use_dictionary in (False, True))
    return dictionary <= (1 - SAVING_MIN) * plain


def _column_bytes(column: pa.Table, level: int, use_dictionary: bool) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(column, sink, compression="zstd", compression_level=level, use_dictionary=use_dictionary)
    return sink.tell()


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
