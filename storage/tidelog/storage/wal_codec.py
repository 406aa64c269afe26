"""WAL entries as Parquet objects, the `wal_entry.WalCodec` of real logs.

The header is JSON in the footer's metadata, so that it is read with the object's last bytes alone. A topic's id stands
there once and spans name it by place; `first_row` and the end of a span follow from the counts, since spans fill the
rows one after another. An entry of 10,000 spans has a header of about 200 KB.

Decoding checks everything: every byte against a checksum (`parquet_format`), the columns, that spans are ascending and
fill the rows, and that each row has the topic, partition and offset its span says (inv. 4).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_store import Body
from tidelog.storage.parquet_format import (
    ParquetFlavor,
    decode_header,
    decode_parquet,
    encode_parquet,
    footer_bytes,
)
from tidelog.storage.records import WAL_SCHEMA
from tidelog.storage.wal_entry import EntryKind, ProducerMark, Span, WalEntry, WalHeader

WAL_FLAVOR = ParquetFlavor("wal/1", WAL_SCHEMA, zstd_level=1, statistics=())
"""Nobody prunes by statistics in the WAL, which is short, so none are written."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class _Span(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    topic: _Natural
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    base_offset: _Natural
    count: _Count


class _Mark(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    topic: _Natural
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: _Natural


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    kind: EntryKind
    shard: _Natural
    seq: _Natural
    epoch: _Natural
    writer_id: str
    entry_id: str
    written_at_ms: int
    topic_ids: list[str]
    spans: list[_Span]
    producers: list[_Mark]


_decoder = msgspec.json.Decoder(_Header)


class ParquetWalCodec:
    """Stateless; any thread may use it. Encoding lets go of the interpreter while it compresses."""

    def encode(self, header: WalHeader, records: pa.Table) -> Body:
        """Raises `Invalid` if `records` is not what `header` says. Topic ids are written from the spans."""
        if not records.schema.equals(WAL_SCHEMA):
            raise Invalid(f"a WAL entry has the columns of WAL_SCHEMA, not {records.schema.names}")
        if reason := _spans_mismatch(header, records):
            raise Invalid(f"entry {header.seq} of shard {header.shard}: {reason}")
        return encode_parquet(WAL_FLAVOR, _with_topic_dictionary(header.spans, records), _encode_header(header))

    def decode(self, key: str, data: bytes) -> WalEntry:
        footer, records = decode_parquet(key, WAL_FLAVOR, data)
        header = _decode_header(key, footer.header_json)
        if reason := _spans_mismatch(header, records) or _topics_mismatch(header.spans, records):
            raise Corrupt(key, reason)
        return WalEntry(header, records)

    def decode_header(self, key: str, tail: bytes) -> WalHeader:
        return _decode_header(key, decode_header(key, WAL_FLAVOR, tail))

    def header_bytes(self, key: str, tail: bytes) -> int:
        return footer_bytes(key, tail)


# ---- the header


def _encode_header(header: WalHeader) -> bytes:
    named = [*(span.topic_partition for span in header.spans), *(mark.topic_partition for mark in header.producers)]
    topic_ids = list(dict.fromkeys(place.topic_id for place in named))
    index = {topic_id: place for place, topic_id in enumerate(topic_ids)}
    document = _Header(
        kind=header.kind,
        shard=header.shard,
        seq=header.seq,
        epoch=header.epoch,
        writer_id=header.writer_id,
        entry_id=header.entry_id,
        written_at_ms=header.written_at_ms,
        topic_ids=topic_ids,
        spans=[_encode_span(span, index[span.topic_partition.topic_id]) for span in header.spans],
        producers=[_encode_mark(mark, index[mark.topic_partition.topic_id]) for mark in header.producers],
    )
    return msgspec.json.encode(document)


def _encode_span(span: Span, topic: int) -> _Span:
    return _Span(topic, span.topic_partition.partition, span.base_offset, span.count)


def _encode_mark(mark: ProducerMark, topic: int) -> _Mark:
    return _Mark(
        topic,
        mark.topic_partition.partition,
        mark.producer_id,
        mark.producer_epoch,
        mark.first_sequence,
        mark.last_sequence,
        mark.base_offset,
    )


def _decode_header(key: str, header_json: bytes) -> WalHeader:
    try:
        document = _decoder.decode(header_json)
        spans = _decode_spans(document)
        producers = tuple(_decode_mark(mark, document.topic_ids) for mark in document.producers)
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise Corrupt(key, f"its header is not that of a WAL entry: {error}") from error
    if (document.kind is EntryKind.RECORDS) != bool(spans):
        raise Corrupt(key, f"is a {document.kind.value} entry of {len(spans)} spans")
    return WalHeader(
        kind=document.kind,
        shard=document.shard,
        seq=document.seq,
        epoch=document.epoch,
        writer_id=document.writer_id,
        entry_id=document.entry_id,
        written_at_ms=document.written_at_ms,
        spans=spans,
        producers=producers,
    )


def _decode_spans(document: _Header) -> tuple[Span, ...]:
    spans, first_row = [], 0
    for span in document.spans:
        place = TopicPartition(document.topic_ids[span.topic], span.partition)
        spans.append(Span(place, span.base_offset, span.count, first_row))
        first_row += span.count
    return tuple(spans)


def _decode_mark(mark: _Mark, topic_ids: list[str]) -> ProducerMark:
    return ProducerMark(
        TopicPartition(topic_ids[mark.topic], mark.partition),
        mark.producer_id,
        mark.producer_epoch,
        mark.first_sequence,
        mark.last_sequence,
        mark.base_offset,
    )


# ---- spans against rows


def _spans_mismatch(header: WalHeader, records: pa.Table) -> str | None:
    """Why `records` is not what the spans say, but for topic ids; None if it is."""
    spans = header.spans
    if (header.kind is EntryKind.RECORDS) != bool(spans):
        return f"a {header.kind.value} entry has {len(spans)} spans"
    counts = np.fromiter((span.count for span in spans), np.int64, len(spans))
    first_rows = np.cumsum(counts) - counts
    if sum(span.count for span in spans) != records.num_rows:
        return f"its spans do not count its {records.num_rows} rows"
    if any(span.first_row != row for span, row in zip(spans, first_rows.tolist(), strict=True)):
        return "its spans do not follow each other"
    places = [span.topic_partition for span in spans]
    if any(left >= right for left, right in pairwise(places)):
        return "its spans are not ascending"
    if any(column.null_count for column in records.columns[:4]):
        return "a record lacks its place or timestamp"
    bases = np.fromiter((span.base_offset for span in spans), np.int64, len(spans))
    offsets = np.arange(records.num_rows) + np.repeat(bases - first_rows, counts)
    if not np.array_equal(_numbers(records["offset"], np.int64), offsets):
        return "its offsets are not those of its spans (inv. 4)"
    partitions = np.fromiter((place.partition for place in places), np.int32, len(places))
    if not np.array_equal(_numbers(records["partition"], np.int32), np.repeat(partitions, counts)):
        return "its partitions are not those of its spans"
    return None


def _topics_mismatch(spans: tuple[Span, ...], records: pa.Table) -> str | None:
    expected = _topic_dictionary(spans).cast(pa.string())
    return None if pa.chunked_array([expected]).equals(records["topic_id"]) else "its topics are not those of its spans"


def _numbers(column: pa.ChunkedArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    return np.concatenate([np.empty(0, dtype), *(chunk.to_numpy() for chunk in column.chunks)])


def _topic_dictionary(spans: tuple[Span, ...]) -> pa.DictionaryArray[Any, Any]:
    topic_ids = list(dict.fromkeys(span.topic_partition.topic_id for span in spans))
    index = {topic_id: place for place, topic_id in enumerate(topic_ids)}
    places = np.fromiter((index[span.topic_partition.topic_id] for span in spans), np.int32, len(spans))
    counts = np.fromiter((span.count for span in spans), np.int64, len(spans))
    return pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(places, counts), pa.int32()), pa.array(topic_ids, pa.string())
    )


def _with_topic_dictionary(spans: tuple[Span, ...], records: pa.Table) -> pa.Table:
    """Topic ids as a dictionary, so that Parquet's writer does not hash one per record."""
    topics = _topic_dictionary(spans)
    return records.set_column(0, pa.field("topic_id", topics.type, nullable=False), topics)
