"""The manifest of a partition: which segments hold its cold records, as the newest entry of an object log.

Version *v* is the whole list at that time, JSON, under `layout.manifest_prefix`. Segments are ascending and do not
overlap; together they hold ``[log_start_offset, cold_end)``, with gaps only where compaction removed records (inv. 4,
5).
Appending version *v + 1* is a create-if-absent: of two workers on one partition one wins, the other starts over.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.storage.layout import TopicPartition
from tidelog.storage.wal_entry import ProducerMark

MANIFEST_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Segment:
    """One cold Parquet object. Sizes in bytes, timestamps in ms since 1970 UTC."""

    key: str
    base_offset: int
    last_offset: int
    records: int
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    sha256: str

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


@dataclass(frozen=True)
class Manifest:
    """One version. `version` is -1 for a partition that has none yet; `producers` is the last batch of each
    idempotent producer at the cold end (inv. 7 outlives the WAL)."""

    topic_partition: TopicPartition
    version: int = -1
    log_start_offset: int = 0
    cold_end: int = 0
    segments: tuple[Segment, ...] = ()
    producers: tuple[ProducerMark, ...] = ()
