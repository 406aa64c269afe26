"""A fast codec: the header as JSON, its length in the last eight bytes. It leaves out the rows; spans and producer
marks say which records an entry holds."""

from __future__ import annotations

import json
from functools import lru_cache

import pyarrow as pa

from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_store import Body
from tidelog.storage.records import WAL_SCHEMA
from tidelog.storage.wal.wal_entry import EntryKind, ProducerMark, Span, WalEntry, WalHeader

NO_RECORDS = WAL_SCHEMA.empty_table()
_LENGTH_BYTES = 8


class LightWalCodec:
    """Implements `WalCodec`."""

    def encode(self, header: WalHeader, records: pa.Table) -> Body:
        spans = [[s.topic_partition.partition, s.base_offset, s.count, s.first_row] for s in header.spans]
        marks = [
            [m.topic_partition.partition, m.producer_id, m.first_sequence, m.last_sequence, m.base_offset]
            for m in header.producers
        ]
        writing = [header.shard, header.seq, header.epoch, header.writer_id, header.entry_id, header.written_at_ms]
        body = json.dumps([header.kind.value, writing, spans, marks]).encode()
        return body + b"%08x" % (len(body) + _LENGTH_BYTES)

    def decode(self, key: str, data: bytes) -> WalEntry:
        return WalEntry(_decode(bytes(data)), NO_RECORDS)

    def decode_header(self, key: str, tail: bytes) -> WalHeader:
        return _decode(bytes(tail))

    def header_bytes(self, key: str, tail: bytes) -> int:
        try:
            return int(tail[-_LENGTH_BYTES:], 16)
        except ValueError as error:
            raise Corrupt(key, "does not end in a length") from error


@lru_cache(maxsize=1024)
def _decode(data: bytes) -> WalHeader:
    kind, (shard, seq, epoch, writer_id, entry_id, at_ms), spans, marks = json.loads(data[:-_LENGTH_BYTES])
    return WalHeader(
        EntryKind(kind),
        shard,
        seq,
        epoch,
        writer_id,
        entry_id,
        at_ms,
        spans=tuple(Span(TopicPartition("t", p), base, count, row) for p, base, count, row in spans),
        producers=tuple(
            ProducerMark(TopicPartition("t", p), producer, 0, first, last, base)
            for p, producer, first, last, base in marks
        ),
    )
