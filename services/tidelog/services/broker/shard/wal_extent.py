"""Counts how much of a shard's WAL lies in the bucket, for the archive loop and for metrics.

Entries from `archived_to` on are not archived yet: they are the **debt** of the archive. Entries below it wait for
their deletion: until the floor has passed them, and then for the grace. Damage **holds** the floor below them. A header
does not contain sizes per topic, so the bytes of an entry are divided among its topics by their records.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.storage.wal.wal_entry import WalHeader
from tidelog.storage.wal.wal_index import IndexedEntry


@dataclass(frozen=True, slots=True)
class _Entry:
    """`shares`: bytes per topic id."""

    seq: int
    size_bytes: int
    written_at_ms: int
    shares: tuple[tuple[str, int], ...]


class WalExtent:
    """Entries with their sizes in bytes."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._passed: deque[_Entry] = deque()
        self._held: deque[_Entry] = deque()
        self._entries_of: Counter[str] = Counter()
        self.floor = 0
        self.archived_to = 0
        self.bytes = 0
        self.passed_bytes = 0
        self.held_bytes = 0

    def __len__(self) -> int:
        """How many entries are not archived yet."""
        return len(self._entries)

    @property
    def topics(self) -> int:
        """How many topics have records that are not archived yet."""
        return len(self._entries_of)

    @property
    def oldest_at_ms(self) -> int | None:
        """When the oldest entry that is not archived was written; None if all are archived."""
        return self._entries[0].written_at_ms if self._entries else None

    def adopt(self, floor: int, entries: Sequence[IndexedEntry]) -> None:
        """Start from the log as it was read: `entries` from `floor` on."""
        self.floor = self.archived_to = floor
        for entry in entries:
            self.add(entry.header, entry.size_bytes)

    def add(self, header: WalHeader, size_bytes: int) -> None:
        entry = _Entry(header.seq, size_bytes, header.written_at_ms, _shares(header, size_bytes))
        self._entries.append(entry)
        self._entries_of.update(topic_id for topic_id, _ in entry.shares)
        self.bytes += size_bytes

    def cut(self, floor: int, archived_to: int = 0) -> None:
        """The floor is at `floor` now; entries below `archived_to` are archived, except what is damaged."""
        self.floor = max(self.floor, floor)
        self.archived_to = max(self.archived_to, self.floor, archived_to)
        while self._entries and self._entries[0].seq < self.archived_to:
            entry = self._entries.popleft()
            self._passed.append(entry)
            self._held.append(entry)
            self._forget_topics(entry)
            self.bytes -= entry.size_bytes
            self.passed_bytes += entry.size_bytes
            self.held_bytes += entry.size_bytes
        while self._held and self._held[0].seq < self.floor:
            self.held_bytes -= self._held.popleft().size_bytes

    def deleted(self, below: int) -> None:
        """The entries below number `below` were deleted."""
        while self._passed and self._passed[0].seq < below:
            self.passed_bytes -= self._passed.popleft().size_bytes

    def debt_bytes(self) -> Mapping[str, int]:
        """Bytes that are not archived, by topic id."""
        return _summed(self._entries)

    def passed_bytes_of_topics(self) -> Mapping[str, int]:
        """Bytes that are archived and wait for their deletion, by topic id."""
        return _summed(self._passed)

    def debt_since_ms(self) -> Mapping[str, int]:
        """When the oldest entry that is not archived was written, by topic id."""
        oldest: dict[str, int] = {}
        for entry in self._entries:
            for topic_id, _ in entry.shares:
                oldest.setdefault(topic_id, entry.written_at_ms)
        return oldest

    def _forget_topics(self, entry: _Entry) -> None:
        for topic_id, _ in entry.shares:
            self._entries_of[topic_id] -= 1
            if not self._entries_of[topic_id]:
                del self._entries_of[topic_id]


def _summed(entries: deque[_Entry]) -> Mapping[str, int]:
    summed: Counter[str] = Counter()
    for entry in entries:
        for topic_id, size_bytes in entry.shares:
            summed[topic_id] += size_bytes
    return summed


def _shares(header: WalHeader, size_bytes: int) -> tuple[tuple[str, int], ...]:
    """Each topic's share of an entry, by records. The sum does not exceed the entry."""
    records: Counter[str] = Counter()
    for span in header.spans:
        records[span.topic_partition.topic_id] += span.count
    whole = records.total()
    return tuple((topic_id, size_bytes * count // whole) for topic_id, count in records.items())
