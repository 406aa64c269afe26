"""What a broker counts for each topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TopicCounts:
    """Totals since the broker started. `bytes_in` and `bytes_out` are those of keys and values; the last three those of
    segments that this broker wrote: from the WAL, merging, compacting by key."""

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    wal_puts: float = 0.0
    wal_bytes: float = 0.0
    cold_gets: int = 0
    archived_bytes: int = 0
    merged_bytes: int = 0
    compacted_bytes: int = 0
