"""Segments of several partitions for tests, made of records as readers get them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.segment_list import FoundSpan
from tidelog.storage.manifests.shard_upload import EncodedSegment
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.row_decoding import decode_parquet
from tidelog.storage.parquet.row_group_copy import CopySource, RowGroupCopier
from tidelog.storage.records import WAL_SCHEMA, as_stored
from tidelog.storage.segments.topic_segment import (
    SEGMENT_FLAVOR,
    SegmentPlace,
    check_header,
    encode_header,
    order_fault,
    sha256_of,
)

PLACE = SegmentPlace("web", "11" * 16, 3)


def made_segment(
    parts: Mapping[int, pa.Table],
    *,
    place: SegmentPlace = PLACE,
    number: int = 0,
    ends: Sequence[int] | None = None,
    flavor: ParquetFlavor = SEGMENT_FLAVOR,
) -> EncodedSegment:
    """A segment with the records (`RECORD_SCHEMA`) of each partition. Its row groups end before the rows `ends`; None:
    as the encoder does it. `number`: distinguishes its key from others."""
    spans = tuple(_span(partition, records) for partition, records in sorted(parts.items()))
    rows = pa.concat_tables(_with_partition(partition, records) for partition, records in sorted(parts.items()))
    body = encode_parquet(flavor, as_stored(rows), encode_header(place, spans), ends)
    times = pc.min_max(rows["timestamp"].cast(pa.int64()))
    segment = TopicSegment(
        key=place.key(f"{number:032x}"),
        run=number,
        level=0,
        size_bytes=len(body),
        sha256=sha256_of(body),
        min_timestamp_ms=times["min"].as_py(),
        max_timestamp_ms=times["max"].as_py(),
        archived_at_ms=0,
        spans=spans,
    )
    return EncodedSegment(place.topic_id, segment, body)


def mapped(made: EncodedSegment) -> EncodedSegment:
    """The same segment as the archiver and the merges write it, with a map of its pages."""
    source = CopySource(made.segment.key, SEGMENT_FLAVOR, made.body)
    copier = RowGroupCopier(SEGMENT_FLAVOR)
    for group in source.footer.row_groups:
        copier.add(source, group.index)
    body = copier.finish(source.footer.header_json)
    segment = structs.replace(made.segment, size_bytes=len(body), sha256=sha256_of(body))
    return EncodedSegment(made.topic_id, segment, body)


def span_in(segment: TopicSegment, partition: int) -> FoundSpan:
    """The span of a partition in `segment`."""
    at = next(at for at, span in enumerate(segment.spans) if span.partition == partition)
    return FoundSpan(segment, segment.spans[at], sum(span.records for span in segment.spans[:at]))


def _span(partition: int, records: pa.Table) -> SegmentSpan:
    first, last = records["offset"][0].as_py(), records["offset"][-1].as_py()
    return SegmentSpan(partition, first, last, records.num_rows, records.nbytes)


def _with_partition(partition: int, records: pa.Table) -> pa.Table:
    places = pa.array([partition] * records.num_rows, pa.int32())
    return pa.Table.from_arrays([places, *records.columns], schema=WAL_SCHEMA)


def decode_topic_segment(segment: TopicSegment, place: SegmentPlace, data: bytes | memoryview) -> pa.Table:
    """The records (`STORED_SCHEMA`) of a whole segment, every byte checked. Raises `Corrupt` naming it."""
    footer, records = decode_parquet(segment.key, SEGMENT_FLAVOR, data)
    check_header(segment, place, footer)
    if fault := order_fault(segment.spans, records):
        raise Corrupt(segment.key, fault)
    return records
