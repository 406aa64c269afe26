"""Segments of one topic and any of its partitions: the codec, for Spark, DuckDB, pandas and us.

The columns are `records.STORED_SCHEMA`, sorted by (partition, offset); compaction may leave gaps in offsets (inv. 4).
Each row group has statistics of `partition`, `offset` and `timestamp`, so that any reader finds its place from the
footer. The footer's header (`parquet_format`) names the topic and the spans, so that an object explains itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.formats import SEGMENT
from tidelog.storage.layout import shard_segment_key, shard_segment_name
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import Footer, RowGroup
from tidelog.storage.records import STORED_SCHEMA

SEGMENT_FLAVOR = ParquetFlavor(
    SEGMENT,
    STORED_SCHEMA,
    zstd_levels=(1, 3),
    lengths_first=True,
    statistics=("partition", "offset", "timestamp"),
    dictionary_columns=("key", "value"),
)

FINAL_SEGMENT_FLAVOR = replace(SEGMENT_FLAVOR, zstd_levels=(1, 8), page_index=True, page_bytes=1024 * 1024)
"""For segments that are not merged again and stay for years."""

IDLE_SEGMENT_FLAVOR = replace(FINAL_SEGMENT_FLAVOR, zstd_levels=(1, 10))
"""The same by a process that has nothing else to do: 2 % smaller than zstd 8, for half as much CPU again."""

_PARTITION, _OFFSET, _TIMESTAMP = range(3)
"""Places of the columns in `RowGroup.bounds`."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Header(msgspec.Struct):
    topic: str
    topic_id: str
    shard: _Natural
    spans: list[tuple[_Natural, _Natural, _Natural, _Natural]]
    """Partition, first and last offset, records."""


_decoder = msgspec.json.Decoder(_Header)


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """What a segment belongs to."""

    topic: str
    topic_id: str
    shard: int

    def key(self, segment_id: str) -> str:
        return shard_segment_key(self.topic, self.topic_id, self.shard, segment_id)


def place_of(key: str) -> SegmentPlace:
    """What the segment with this key belongs to, by its name. Raises `Corrupt`."""
    name = shard_segment_name(key)
    if name is None:
        raise Corrupt(key, "is not the name of a segment")
    return SegmentPlace(name.topic, name.topic_id, name.shard)


def encode_header(place: SegmentPlace, spans: Sequence[SegmentSpan]) -> bytes:
    """The header in a segment's footer."""
    stated = [(span.partition, span.base_offset, span.last_offset, span.records) for span in spans]
    return msgspec.json.encode(_Header(place.topic, place.topic_id, place.shard, stated))


def offset_bounds(group: RowGroup) -> tuple[int, int]:
    """The least and greatest offset of any partition in `group`."""
    return group.bounds[_OFFSET]


def partition_bounds(group: RowGroup) -> tuple[int, int]:
    """The least and greatest partition in `group`."""
    return group.bounds[_PARTITION]


def stored_span(group: RowGroup) -> SegmentSpan:
    """The records of `group`, which belong to one partition."""
    return SegmentSpan(partition_bounds(group)[0], *offset_bounds(group), group.rows, group.raw_bytes)


def min_timestamp_ms(groups: Sequence[RowGroup]) -> int:
    return min(group.bounds[_TIMESTAMP][0] for group in groups) // 1_000


def max_timestamp_ms(groups: Sequence[RowGroup]) -> int:
    return max(group.bounds[_TIMESTAMP][1] for group in groups) // 1_000


def sha256_of(body: Body) -> str:
    return hashlib.sha256(body).hexdigest()


def decode_place(key: str, footer: Footer) -> tuple[SegmentPlace, Sequence[tuple[int, int, int, int]]]:
    """What the footer says that the segment belongs to, and its spans: partition, first and last offset, records.
    Raises `Corrupt`."""
    header = _header(key, footer.header_json)
    return SegmentPlace(header.topic, header.topic_id, header.shard), header.spans


def _header(key: str, header_json: bytes) -> _Header:
    try:
        return _decoder.decode(header_json)
    except msgspec.DecodeError as error:
        raise Corrupt(key, f"its header is not that of a segment: {error}") from error


def check_header(segment: TopicSegment, place: SegmentPlace, footer: Footer) -> None:
    """Raises `Corrupt` unless the footer is that of `segment`, as its manifest describes it."""
    found, spans = decode_place(segment.key, footer)
    if found != place:
        raise Corrupt(segment.key, "it belongs to another topic or shard than its name says")
    if list(spans) != [(span.partition, span.base_offset, span.last_offset, span.records) for span in segment.spans]:
        raise Corrupt(segment.key, "it holds other records than its manifest says")
    if footer.rows != segment.records:
        raise Corrupt(segment.key, f"it has {footer.rows} rows, its manifest says {segment.records}")


def order_fault(spans: Sequence[SegmentSpan], records: pa.Table) -> str | None:
    """Why `records` are not those that `spans` describe; None if they are."""
    if any(records[name].null_count for name in ("partition", "offset", "timestamp")):
        return "a record lacks its place or timestamp"
    counts = np.array([span.records for span in spans])
    if counts.sum() != records.num_rows:
        return f"its spans do not count its {records.num_rows} rows"
    offsets, firsts = records["offset"].to_numpy(), np.cumsum(counts) - counts
    if not np.array_equal(records["partition"].to_numpy(), np.repeat([span.partition for span in spans], counts)):
        return "its partitions are not those of its spans"
    rises = np.diff(offsets) > 0
    rises[firsts[1:] - 1] = True  # the first row of a span may have any offset
    if not bool(rises.all()):
        return "its offsets are not ascending within a partition"
    ends = [(int(offsets[first]), int(offsets[first + count - 1])) for first, count in zip(firsts, counts, strict=True)]
    if ends != [(span.base_offset, span.last_offset) for span in spans]:
        return "its first and last records are not those of its spans"
    return None
