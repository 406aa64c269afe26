"""WAL entries as Parquet objects: the `wal_entry.WalCodec` of real logs.

The header is JSON in the footer's metadata, so it can be read from the object's last bytes alone. A topic's id is
stored once, and spans refer to it by position. The `first_row` and the end of a span follow from the counts, since
spans fill the rows one after another. An entry of 10,000 spans has a header of about 200 KB.

The rows have no column for the topic: the spans name it. Row groups end where a topic or a large partition ends
(`entry_groups`), so that the archiver can copy them into the topic's segment as they are.

Decoding checks everything: every byte against a checksum (`parquet_format`), the columns, that spans are ascending and
fill the rows, and that each row has the partition and offset of its span (inv. 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.formats import WAL
from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_store import Body
from tidelog.storage.parquet.parquet_encoder import encode_parquet
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.parquet.parquet_format import decode_header, footer_bytes, parsing
from tidelog.storage.parquet.row_decoding import decode_parquet
from tidelog.storage.records import STORED_SCHEMA, WAL_SCHEMA, as_stored, from_stored
from tidelog.storage.wal.entry_groups import row_group_ends
from tidelog.storage.wal.wal_entry import EntryKind, ProducerMark, Span, WalEntry, WalHeader

WAL_FLAVOR = ParquetFlavor(
    WAL,
    STORED_SCHEMA,
    zstd_levels=(1,),
    lengths_first=False,
    statistics=("partition", "offset", "timestamp"),
    plain_bytes=4096,
)
"""The archiver copies row groups with their statistics, by which readers of segments prune. A few small records are not
compressed: a PUT costs the same, and their producer waits only for the encoding and the PUT."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class _Span(msgspec.Struct, array_like=True):
    topic: _Natural
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    base_offset: _Natural
    count: _Count


class _Mark(msgspec.Struct, array_like=True):
    topic: _Natural
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: _Natural


class _Header(msgspec.Struct):
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
    """Stateless; any thread may use it. Encoding releases the GIL while it compresses."""

    def encode(self, header: WalHeader, records: pa.Table) -> Body:
        """Raises `Invalid` if `records` does not match `header`."""
        if not records.schema.equals(WAL_SCHEMA):
            raise Invalid(f"a WAL entry has the columns of WAL_SCHEMA, not {records.schema.names}")
        if reason := _fault(header, records):
            raise Invalid(f"entry {header.seq} of shard {header.shard}: {reason}")
        ends = row_group_ends(header.spans, records)
        return encode_parquet(WAL_FLAVOR, as_stored(records), encode_header(header), ends)

    def decode(self, key: str, data: bytes) -> WalEntry:
        footer, stored = decode_parquet(key, WAL_FLAVOR, data)
        header = decode_header_json(key, footer.header_json)
        with parsing(key):
            records = from_stored(stored)
        if reason := _fault(header, records):
            raise Corrupt(key, reason)
        return WalEntry(header, records)

    def decode_header(self, key: str, tail: bytes) -> WalHeader:
        return decode_header_json(key, decode_header(key, WAL_FLAVOR, tail))

    def header_bytes(self, key: str, tail: bytes) -> int:
        return footer_bytes(key, tail)


def encode_header(header: WalHeader) -> bytes:
    """`header` as the JSON of an entry's footer."""
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


def decode_header_json(key: str, header_json: bytes) -> WalHeader:
    """The inverse of `encode_header`. Raises `Corrupt` naming `key`."""
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


@dataclass(frozen=True)
class _SpanColumns:
    """Spans as columns, so that thousands of them cost little. `topics` are indexes into `topic_ids`."""

    topic_ids: Sequence[str]
    topics: npt.NDArray[np.int32]
    partitions: npt.NDArray[np.int64]
    base_offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    first_rows: npt.NDArray[np.int64]

    @property
    def ascending(self) -> bool:
        """Whether the spans ascend by topic id and partition, without duplicates."""
        topics, partitions = np.diff(self.topics), np.diff(self.partitions)
        in_order = (topics > 0) | ((topics == 0) & (partitions > 0))
        return bool(np.all(in_order)) and all(left < right for left, right in pairwise(self.topic_ids))

    def partition_rows(self) -> npt.NDArray[np.int64]:
        return np.repeat(self.partitions, self.counts)

    def offset_rows(self) -> npt.NDArray[np.int64]:
        return np.arange(int(self.counts.sum())) + np.repeat(self.base_offsets - self.first_rows, self.counts)


def _columns(spans: Sequence[Span]) -> _SpanColumns:
    """`topic_ids` are in the order of their first span; `ascending` checks that order."""
    topic_ids = list(dict.fromkeys(span.topic_partition.topic_id for span in spans))
    index = {topic_id: place for place, topic_id in enumerate(topic_ids)}
    count = len(spans)
    return _SpanColumns(
        topic_ids,
        np.fromiter((index[span.topic_partition.topic_id] for span in spans), np.int32, count),
        np.fromiter((span.topic_partition.partition for span in spans), np.int64, count),
        np.fromiter((span.base_offset for span in spans), np.int64, count),
        np.fromiter((span.count for span in spans), np.int64, count),
        np.fromiter((span.first_row for span in spans), np.int64, count),
    )


def _fault(header: WalHeader, records: pa.Table) -> str | None:
    """How `records` differs from `header`; None if it does not."""
    if header.kind is EntryKind.RECORDS and len(header.spans) == 1:
        return _fault_of_one(header.spans[0], records)
    return _mismatch(header.kind, _columns(header.spans), records)


def _fault_of_one(span: Span, records: pa.Table) -> str | None:
    """`_mismatch` for an entry of one partition, where numpy calls over vectors of one would be most of the work."""
    if not span.count == records.num_rows > 0:
        return f"its spans do not count its {records.num_rows} rows"
    if span.first_row:
        return "its spans do not follow each other"
    if any(records.column(place).null_count for place in range(3)):
        return "a record lacks its place or timestamp"
    if not np.array_equal(_numbers(records["offset"]), np.arange(span.base_offset, span.next_offset)):
        return "its offsets are not those of its spans (inv. 4)"
    if (_numbers(records["partition"]) != span.topic_partition.partition).any():
        return "its partitions are not those of its spans"
    return None


def _mismatch(kind: EntryKind, spans: _SpanColumns, records: pa.Table) -> str | None:
    """How `records` differs from the spans; None if it does not."""
    counts = spans.counts
    if (kind is EntryKind.RECORDS) != bool(len(counts)):
        return f"a {kind.value} entry has {len(counts)} spans"
    if np.any(counts < 1) or np.any(counts > records.num_rows) or counts.sum() != records.num_rows:
        return f"its spans do not count its {records.num_rows} rows"
    if not np.array_equal(spans.first_rows, np.cumsum(counts) - counts):
        return "its spans do not follow each other"
    if not spans.ascending:
        return "its spans are not ascending"
    if any(column.null_count for column in records.columns[:3]):
        return "a record lacks its place or timestamp"
    if not np.array_equal(_numbers(records["offset"]), spans.offset_rows()):
        return "its offsets are not those of its spans (inv. 4)"
    if not np.array_equal(_numbers(records["partition"]), spans.partition_rows()):
        return "its partitions are not those of its spans"
    return None


def _numbers(column: pa.ChunkedArray[Any]) -> npt.NDArray[np.int64]:
    if column.num_chunks == 1:
        return column.chunk(0).to_numpy()
    return np.concatenate([np.empty(0, np.int64), *(chunk.to_numpy() for chunk in column.chunks)])
