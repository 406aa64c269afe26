"""One entry of a write-ahead log as values: what the codec encodes, the writer commits and readers get.

An entry is a Parquet object whose rows are sorted by (topic_id, partition, offset). Its footer carries a `WalHeader`,
so that an index of a whole log needs the footers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_store import Body


class EntryKind(Enum):
    """A `START` entry begins an epoch and holds no records; a `RECORDS` entry holds at least one."""

    START = "start"
    RECORDS = "records"


@dataclass(frozen=True)
class Span:
    """The rows of one partition in an entry: `count` dense offsets from `base_offset`, from row `first_row` on."""

    topic_partition: TopicPartition
    base_offset: int
    count: int
    first_row: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True)
class ProducerMark:
    """One idempotent producer's batch in an entry: sequences `first_sequence` to `last_sequence` lie at offsets
    from `base_offset` on, one each."""

    topic_partition: TopicPartition
    producer_id: str
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass(frozen=True)
class WalHeader:
    """Who wrote an entry and what it holds. `entry_id` tells one's own lost PUT from another's (inv. 2)."""

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
    """A decoded entry. `records` has `records.WAL_SCHEMA`, no rows for a START entry."""

    header: WalHeader
    records: pa.Table

    def records_of(self, span: Span) -> pa.Table:
        """The rows of `span` with `records.RECORD_SCHEMA`, no copy."""
        rows = self.records.slice(span.first_row, span.count)
        return rows.drop_columns(["topic_id", "partition"])


@dataclass(frozen=True)
class PreparedEntry:
    """An encoded entry on its way to the log: the same bytes go out at every retry."""

    header: WalHeader
    body: Body


class WalCodec(Protocol):
    """Entries to bytes and back. `wal_codec.ParquetWalCodec` is that of real logs; the simulation has a light one."""

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
        """How many of the object's last bytes `decode_header` needs, told by its very last ones (8 at least).
        Raises `Corrupt` naming `key`."""
        ...
