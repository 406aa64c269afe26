"""The settings of Tidelog's Parquet: those that were measured as best, and those chosen for each object.

Fixed are zstd, packed differences for numbers, page checksums, and statistics of row groups and pages where a reader
prunes by them. Chosen by a look at the rows are dictionaries for keys and values, the encoding of values, and the
compression level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.storage.formats import Format

ROW_GROUP_ROWS_MAX = 1_000_000
ROW_GROUP_RAW_BYTES = 8 * 1024 * 1024
"""The approximate size of a row group in raw bytes. A read from the middle must fetch and decode one row group."""

PAGE_RAW_BYTES = 512 * 1024
"""A page of a column has about so many raw bytes. A lookup must decode one page."""

SAMPLE_BYTES = 512 * 1024
"""The size of the sample of values by which the compression level is chosen."""
SAVING_MIN = 0.04
"""The share of bytes that a costlier level, or a dictionary, must save."""
DISTINCT_SAMPLE_ROWS = 1_000
"""If more than half of so many rows are distinct, no dictionary is tried: the keys seldom repeat."""
BLOOM_FALSE_POSITIVES = 0.01
"""The share of absent keys that seem to be in a row group. Costs 10 bits per distinct key."""
SHORT_VALUE_BYTES = 256
"""Values that are shorter on average are written lengths first, bytes after: that is smaller, and a quarter less work
at 100 bytes. Longer values compress as well with the lengths between them, at a little less work."""

_DELTA_COLUMNS = ("partition", "offset", "timestamp")


@dataclass(frozen=True)
class ParquetFlavor:
    """The settings in which WAL entries and segments differ.

    - `form`: the format and its versions.
    - `zstd_levels`, the cheapest first: a later level is used if it makes a sample of the values smaller by
      `SAVING_MIN`. Level 5 takes four times the work of 1; it saves 8 % of JSON events, and nothing of random text.
    - `lengths_first`: write all values lengths first, not only short ones. Saves about 2 %.
    - `page_index`: also write statistics and positions of pages.
    - `dictionary_columns`: these may have a dictionary, if it saves `SAVING_MIN`.
    - `bloom_column`: this one has a bloom filter.
    - `page_bytes`: about the raw bytes of a page. Pages of 1 MiB store JSON events in 0.4 % fewer bytes than pages of
      512 KiB, and a lookup must decode one.
    - `plain_bytes`: an object with fewer bytes of values is not compressed.
    """

    form: Format
    schema: pa.Schema
    zstd_levels: tuple[int, ...]
    lengths_first: bool
    statistics: tuple[str, ...]
    page_index: bool = False
    dictionary_columns: tuple[str, ...] = ()
    bloom_column: str | None = None
    page_bytes: int = PAGE_RAW_BYTES
    plain_bytes: int = 0

    @property
    def name(self) -> str:
        """The format and its version, as objects state it."""
        return f"{self.form.name}/{self.form.newest}"

    @property
    def has_index(self) -> bool:
        """Whether indexes lie between the row groups and the footer."""
        return self.page_index or self.bloom_column is not None


def row_group_rows(table: pa.Table) -> int:
    """The number of rows for row groups of equal size, about `ROW_GROUP_RAW_BYTES` each."""
    groups = max(1, round(table.nbytes / ROW_GROUP_RAW_BYTES), -(-table.num_rows // ROW_GROUP_ROWS_MAX))
    return max(1, -(-table.num_rows // groups))


@dataclass(frozen=True)
class WriterSettings:
    """The settings of an object: those of its flavor, and those that were chosen by some of its rows."""

    flavor: ParquetFlavor
    schema: pa.Schema
    chosen: Mapping[str, Any]  # the stubs know fewer types than the writer takes


def settings_for(flavor: ParquetFlavor, like: pa.Table) -> WriterSettings:
    """The settings for row groups like `like`, the first one."""
    values = like.column("value")
    level = zstd_level(flavor.zstd_levels, values)
    dictionaries = [name for name in flavor.dictionary_columns if _dictionary_pays(like.select([name]), level)]
    encodings = {name: "DELTA_BINARY_PACKED" for name in _DELTA_COLUMNS if name in like.column_names}
    if "value" not in dictionaries and (flavor.lengths_first or values.nbytes < SHORT_VALUE_BYTES * len(values)):
        encodings["value"] = "DELTA_LENGTH_BYTE_ARRAY"
    plain = values.nbytes < flavor.plain_bytes
    chosen = {
        "use_dictionary": dictionaries or False,
        "column_encoding": encodings,
        "compression": "none" if plain else "zstd",
        "compression_level": None if plain else level,
        "bloom_filter_options": _bloom_filter(flavor, like),
    }
    return WriterSettings(flavor, like.schema, chosen)


def open_writer(settings: WriterSettings, sink: pa.NativeFile) -> pq.ParquetWriter:
    """A writer of an object into `sink`."""
    return pq.ParquetWriter(
        sink,
        settings.schema,
        version="2.6",
        write_statistics=list(settings.flavor.statistics),
        write_page_index=settings.flavor.page_index,
        write_page_checksum=True,
        data_page_size=settings.flavor.page_bytes,
        store_schema=False,
        **settings.chosen,
    )


def _bloom_filter(flavor: ParquetFlavor, like: pa.Table) -> dict[str, dict[str, float]] | None:
    """Sized for the distinct values of the first row group."""
    if flavor.bloom_column is None:
        return None
    distinct = pc.count_distinct(like.column(flavor.bloom_column)).as_py()
    return {flavor.bloom_column: {"ndv": max(1, distinct), "fpp": BLOOM_FALSE_POSITIVES}}


def _dictionary_pays(column: pa.Table, level: int) -> bool:
    """Whether a dictionary makes this column of a row group smaller after zstd. Writes it both ways, unless a few rows
    already show that it cannot."""
    few = column.column(0).slice(0, DISTINCT_SAMPLE_ROWS)
    if few.null_count == len(few) or pc.count_distinct(few).as_py() > len(few) // 2:
        return False
    plain, dictionary = (_column_bytes(column, level, use_dictionary) for use_dictionary in (False, True))
    return dictionary <= (1 - SAVING_MIN) * plain


def _column_bytes(column: pa.Table, level: int, use_dictionary: bool) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(column, sink, compression="zstd", compression_level=level, use_dictionary=use_dictionary)
    return sink.tell()


def zstd_level(levels: Sequence[int], values: pa.ChunkedArray[Any]) -> int:
    """The level of `levels` that pays, by a sample from the middle of `values`."""
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
