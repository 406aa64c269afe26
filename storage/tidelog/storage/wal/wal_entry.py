"""One entry of a write-ahead log as values, which the codec encodes and the writer commits.

An entry is a Parquet object whose rows are sorted by (topic_id, partition, offset). Its footer holds a `WalHeader`, so
that an index of a whole log needs only the footers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_store import Body


class EntryKind(Enum):
    """A `START` entry begins an epoch and has no records. A `RECORDS` entry has at least one."""

    START = "start"
    RECORDS = "records"


@dataclass(frozen=True)
class Span:
    """The rows of one partition in an entry: `count` rows from `first_row`, with dense offsets from `base_offset`."""

    topic_partition: TopicPartition
    base_offset: int
    count: int
    first_row: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True)
class ProducerMark:
    """One idempotent producer's batch in an entry. Sequence `first_sequence` has offset `base_offset`, and so on, one
    by one, up to `last_sequence`."""

    topic_partition: TopicPartition
    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass(frozen=True)
class WalHeader:
    """An entry's writer and contents. By `entry_id` a writer recognizes its own entry if the PUT's answer was lost
    (inv. 2)."""

    kind: EntryKind
    shard: int
    seq: int
    epoch: int
    writer_id: str
    entry_id: str
    written_at_ms: int
    spans: tuple[Span, ...] = ()
    producers: tuple[ProducerMark, ...] = ()


@dataclass(frozen=True)
class WalEntry:
    """A decoded entry. `records` has `records.WAL_SCHEMA`; a START entry has no rows."""

    header: WalHeader
    records: pa.Table

    def records_of(self, span: Span) -> pa.Table:
        """The rows of `span` with `records.RECORD_SCHEMA`, without a copy."""
        rows = self.records.slice(span.first_row, span.count)
        return rows.drop_columns(["partition"])


@dataclass(frozen=True)
class PreparedEntry:
    """An encoded entry. Every retry sends the same bytes."""

    header: WalHeader
    body: Body


class WalCodec(Protocol):
    """Encodes and decodes entries. Real logs use `wal_codec.ParquetWalCodec`; the simulation has a lighter one."""

    def encode(self, header: WalHeader, records: pa.Table) -> Body:
        """`records` has `records.WAL_SCHEMA`, sorted, matching `header.spans`."""
        ...

    def decode(self, key: str, data: bytes) -> WalEntry:
        """The whole entry, checked. Raises `Corrupt` naming `key`."""
        ...

    def decode_header(self, key: str, tail: bytes) -> WalHeader:
        """The header from an object's last bytes, at least `header_bytes` of them. Raises `Corrupt` naming `key`."""
        ...

    def header_bytes(self, key: str, tail: bytes) -> int:
        """The number of last bytes that `decode_header` needs. `tail` is the object's last bytes, at least 8. Raises
        `Corrupt` naming `key`."""
        ...
