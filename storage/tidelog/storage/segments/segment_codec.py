"""The codec of segments: archived records of one partition as one Parquet object, for Spark, DuckDB, pandas and us.

The columns are `records.RECORD_SCHEMA`, offsets ascending (compaction may leave gaps, inv. 4). Row groups of about 8
MiB of raw records have statistics of `offset` and `timestamp`, so that any reader finds its place from the footer. The
footer's header (`parquet_format`) names the partition. `segment_reader` reads a range of a segment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.formats import Format
from tidelog.storage.layout import SegmentName, TopicPartition, parse_segment_key, segment_key
from tidelog.storage.manifests.manifest import Segment
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import (
    Footer,
    RowGroup,
    decode_footer,
    decode_parquet,
    decode_rows,
)
from tidelog.storage.records import RECORD_SCHEMA

SEGMENT_FLAVOR = ParquetFlavor(
    Format("segment", 2, 2),
    RECORD_SCHEMA,
    zstd_levels=(1, 3),
    lengths_first=True,
    statistics=("offset", "timestamp"),
    page_index=True,
    dictionary_columns=("key", "value"),
)

FINAL_SEGMENT_FLAVOR = replace(SEGMENT_FLAVOR, zstd_levels=(1, 10))
"""For segments that are not merged again and stay for years: on JSON events 18 % smaller, for some five times the work,
once per record. Higher levels save little: level 12 another 2 % for a quarter more work."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    topic_id: str
    partition: _Natural
    base_offset: _Natural
    last_offset: _Natural
    records: _Natural


_decoder = msgspec.json.Decoder(_Header)


@dataclass(frozen=True)
class EncodedSegment:
    """A segment that is not uploaded yet. `segment.key` is its key."""

    segment: Segment
    body: Body


def encode_segment(
    topic: str,
    topic_partition: TopicPartition,
    records: pa.Table,
    segment_id: str,
    flavor: ParquetFlavor = SEGMENT_FLAVOR,
) -> EncodedSegment:
    """`records` (`RECORD_SCHEMA`, at least one, offsets ascending) as a segment of `topic_partition`. `segment_id`
    distinguishes it from others with the same offsets. Raises `Invalid`."""
    if not records.schema.equals(RECORD_SCHEMA):
        raise Invalid(f"a segment has the columns of RECORD_SCHEMA, not {records.schema.names}")
    if reason := _offsets_fault(records):
        raise Invalid(f"{topic}-{topic_partition.partition}: {reason}")
    base_offset, last_offset = records["offset"][0].as_py(), records["offset"][-1].as_py()
    header_json = encode_segment_header(topic, topic_partition, base_offset, last_offset, records.num_rows)
    body = encode_parquet(flavor, records, header_json)
    key = name_segment(topic, topic_partition, base_offset, last_offset, segment_id)
    return EncodedSegment(_described(key, body, records), body)


def encode_segment_header(
    topic: str, topic_partition: TopicPartition, base_offset: int, last_offset: int, records: int
) -> bytes:
    """The header in a segment's footer."""
    place = topic_partition.topic_id, topic_partition.partition
    return msgspec.json.encode(_Header(topic, *place, base_offset, last_offset, records))


def name_segment(
    topic: str, topic_partition: TopicPartition, base_offset: int, last_offset: int, segment_id: str
) -> str:
    """The key of a segment."""
    place = topic_partition.topic_id, topic_partition.partition
    return segment_key(topic, *place, base_offset, last_offset, segment_id)


def decode_segment(key: str, data: bytes | memoryview) -> pa.Table:
    """The records of a whole segment, every byte checked. Raises `Corrupt` naming `key`."""
    footer, records = decode_parquet(key, SEGMENT_FLAVOR, data)
    header = _checked_header(key, footer)
    if reason := _offsets_fault(records):
        raise Corrupt(key, reason)
    if (records["offset"][0].as_py(), records["offset"][-1].as_py()) != (header.base_offset, header.last_offset):
        raise Corrupt(key, "its first and last records are not those that its footer names")
    return records


def decode_segment_footer(key: str, tail: bytes | memoryview, object_bytes: int) -> Footer:
    """The footer of a segment of `object_bytes`, from its last bytes, checked against its key. Raises `Corrupt`."""
    footer = decode_footer(key, SEGMENT_FLAVOR, tail, object_bytes)
    _checked_header(key, footer)
    return footer


def decode_segment_rows(
    key: str, footer: Footer, groups: Sequence[RowGroup], data: memoryview, columns: Sequence[str] | None = None
) -> pa.Table:
    """The records of `groups`, neighbours in the segment, whose bytes are `data`: all columns, or `columns`, which
    include offset and timestamp. Raises `Corrupt` naming `key`."""
    records = decode_rows(key, SEGMENT_FLAVOR, footer, groups, data, columns)
    if reason := _offsets_fault(records):
        raise Corrupt(key, reason)
    if (records["offset"][0].as_py(), records["offset"][-1].as_py()) != (min_offset(groups[0]), max_offset(groups[-1])):
        raise Corrupt(key, "its records are not those that its statistics name")
    return records


def min_offset(group: RowGroup) -> int:
    return group.bounds[0][0]


def max_offset(group: RowGroup) -> int:
    return group.bounds[0][1]


def max_timestamp_ms(group: RowGroup) -> int:
    return group.bounds[1][1]


def describe_segment(key: str, data: bytes | memoryview) -> Segment:
    """The manifest entry of the segment `data` under `key`. Raises `Corrupt`."""
    return _described(key, data, decode_segment(key, data))


def _described(key: str, data: Body, records: pa.Table) -> Segment:
    timestamps = pc.min_max(records["timestamp"].cast(pa.int64()))
    return Segment(
        key=key,
        base_offset=records["offset"][0].as_py(),
        last_offset=records["offset"][-1].as_py(),
        records=records.num_rows,
        size_bytes=len(data),
        min_timestamp_ms=timestamps["min"].as_py(),
        max_timestamp_ms=timestamps["max"].as_py(),
        sha256=hashlib.sha256(data).hexdigest(),
        raw_bytes=raw_bytes_of(records),
    )


def raw_bytes_of(records: pa.Table) -> int:
    """The bytes of keys and values, uncompressed."""
    return sum(pc.sum(pc.binary_length(records[name])).as_py() or 0 for name in ("key", "value"))


def _checked_header(key: str, footer: Footer) -> _Header:
    try:
        header = _decoder.decode(footer.header_json)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(key, f"its header is not that of a segment: {error}") from error
    name = parse_segment_key(key)
    said = SegmentName(
        header.topic, header.topic_id, header.partition, header.base_offset, header.last_offset, name.segment_id
    )
    if said != name:
        raise Corrupt(key, "it holds other records than its name says")
    if header.records != footer.rows or header.records == 0:
        raise Corrupt(key, f"it has {footer.rows} rows, its header says {header.records}")
    return header


def _offsets_fault(records: pa.Table) -> str | None:
    """Why `records` cannot be those of a segment; None if they can."""
    if records.num_rows == 0:
        return "a segment holds at least one record"
    if records["offset"].null_count or records["timestamp"].null_count:
        return "a record lacks its offset or timestamp"
    offsets = records["offset"].to_numpy()
    if offsets[0] < 0 or not bool(np.all(offsets[1:] > offsets[:-1])):
        return "its offsets are not ascending from 0 on"
    return None
