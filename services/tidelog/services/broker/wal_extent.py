"""How much of a shard's WAL is not archived yet: what tells the archiver when to run, and an operator how it stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.wal_index import IndexedEntry


@dataclass(frozen=True, slots=True)
class _Entry:
    seq: int
    size_bytes: int
    written_at_ms: int


class WalExtent:
    """Entries from the floor on, with their sizes in bytes."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self.floor = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest_at_ms(self) -> int | None:
        """When the oldest entry was written, None if there is none."""
        return self._entries[0].written_at_ms if self._entries else None

    def adopt(self, floor: int, entries: Sequence[IndexedEntry]) -> None:
        """Begin with the log as it was found: `entries` from `floor` on."""
        self.floor = floor
        for entry in entries:
            self.add(entry.header.seq, entry.size_bytes, entry.header.written_at_ms)

    def add(self, seq: int, size_bytes: int, written_at_ms: int) -> None:
        self._entries.append(_Entry(seq, size_bytes, written_at_ms))
        self.bytes += size_bytes

    def cut(self, floor: int) -> None:
        """The floor has moved up to `floor`."""
        self.floor = max(self.floor, floor)
        while self._entries and self._entries[0].seq < self.floor:
            self.bytes -= self._entries.popleft().size_bytes
