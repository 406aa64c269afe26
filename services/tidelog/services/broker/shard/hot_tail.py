"""Recent WAL entries in memory, decoded, shared by all readers and bounded in bytes.

An entry is kept whole, as the table that was committed; a partition's records are a slice of it. So the cost of an
entry follows its bytes, not the number of its partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from cachetools import LRUCache

ENTRY_OVERHEAD_BYTES = 8 * 1024
"""Memory of an entry beside its records: objects of Arrow and Python."""


@dataclass(frozen=True, order=True)
class EntryName:
    """Identifies a WAL entry."""

    shard: int
    seq: int


@dataclass(frozen=True)
class _Kept:
    records: pa.Table
    size_bytes: int


def _size_bytes(kept: _Kept) -> int:
    return kept.size_bytes


class HotTail:
    """Entries of at most `bytes_max` together; the least recently used are dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._entries: LRUCache[EntryName, _Kept] = LRUCache(bytes_max, getsizeof=_size_bytes)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        return int(self._entries.currsize)

    def get(self, name: EntryName) -> pa.Table | None:
        kept = self._entries.get(name)
        return None if kept is None else kept.records

    def put(self, name: EntryName, records: pa.Table, held_bytes: int) -> None:
        """Keep an entry whose records keep `held_bytes` of memory alive, unless it alone exceeds the bound."""
        kept = _Kept(records, held_bytes + ENTRY_OVERHEAD_BYTES)
        if kept.size_bytes <= self._entries.maxsize and name not in self._entries:
            self._entries[name] = kept

    def drop(self, shard: int) -> None:
        """Drop the entries of a shard that this broker no longer leads."""
        for name in [name for name in self._entries if name.shard == shard]:
            del self._entries[name]
