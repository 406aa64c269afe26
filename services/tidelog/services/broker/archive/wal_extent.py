"""How much of a shard's WAL lies on the bucket: what tells the archiver when to run, and an operator how it stands.

Entries from `archived_to` on are not archived yet: the **debt** of the archive. Those below it are, and wait for their
deletion: until the floor has passed them, which damage may hold up, and then for the grace. An entry's bytes are shared
out to the topics in it by their records, since a header does not tell bytes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.storage.wal_entry import WalHeader
from tidelog.storage.wal_index import IndexedEntry


@dataclass(frozen=True, slots=True)
class _Entry:
    """`shares`: bytes by topic id."""

    seq: int
    size_bytes: int
    written_at_ms: int
    shares: tuple[tuple[str, int], ...]


class WalExtent:
    """Entries with their sizes in bytes."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._passed: deque[_Entry] = deque()
        self.floor = 0
        self.archived_to = 0
        self.bytes = 0
        self.passed_bytes = 0

    def __len__(self) -> int:
        """How many are not archived yet."""
        return len(self._entries)

    @property
    def oldest_at_ms(self) -> int | None:
        """When the oldest entry that is not archived was written, None if there is none."""
        return self._entries[0].written_at_ms if self._entries else None

    def adopt(self, floor: int, entries: Sequence[IndexedEntry]) -> None:
        """Begin with the log as it was found: `entries` from `floor` on."""
        self.floor = self.archived_to = floor
        for entry in entries:
            self.add(entry.header, entry.size_bytes)

    def add(self, header: WalHeader, size_bytes: int) -> None:
        self._entries.append(_Entry(header.seq, size_bytes, header.written_at_ms, _shares(header, size_bytes)))
        self.bytes += size_bytes

    def cut(self, floor: int, archived_to: int = 0) -> None:
        """The floor has moved up to `floor`; entries below `archived_to` are archived as far as they can be."""
        self.floor = max(self.floor, floor)
        self.archived_to = max(self.archived_to, self.floor, archived_to)
        while self._entries and self._entries[0].seq < self.archived_to:
            entry = self._entries.popleft()
            self._passed.append(entry)
            self.bytes -= entry.size_bytes
            self.passed_bytes += entry.size_bytes

    def deleted(self, below: int) -> None:
        """Entries below number `below` are on the bucket no more."""
        while self._passed and self._passed[0].seq < below:
            self.passed_bytes -= self._passed.popleft().size_bytes

    # ---- by topic

    def debt_bytes(self) -> Mapping[str, int]:
        """What is not archived, by topic id."""
        return _summed(self._entries)

    def passed_bytes_of_topics(self) -> Mapping[str, int]:
        """What is archived and waits for its deletion, by topic id."""
        return _summed(self._passed)

    def debt_since_ms(self) -> Mapping[str, int]:
        """When the oldest entry that is not archived was written, by id of the topics that have one."""
        oldest: dict[str, int] = {}
        for entry in self._entries:
            for topic_id, _ in entry.shares:
                oldest.setdefault(topic_id, entry.written_at_ms)
        return oldest


def _summed(entries: deque[_Entry]) -> Mapping[str, int]:
    summed: Counter[str] = Counter()
    for entry in entries:
        for topic_id, size_bytes in entry.shares:
            summed[topic_id] += size_bytes
    return summed


def _shares(header: WalHeader, size_bytes: int) -> tuple[tuple[str, int], ...]:
    """Each topic's part of an entry, by records; together they are no more than all of it."""
    records: Counter[str] = Counter()
    for span in header.spans:
        records[span.topic_partition.topic_id] += span.count
    whole = records.total()
    return tuple((topic_id, size_bytes * count // whole) for topic_id, count in records.items())
