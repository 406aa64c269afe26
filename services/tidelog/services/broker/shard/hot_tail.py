"""Recent WAL entries in memory, decoded, shared by all readers and bounded in bytes.

An entry is kept whole, as the table that was committed; a partition's records are a slice of it. So the cost of an
entry follows its bytes, not the number of its partitions. Batches as their producers sent them are kept beside the
table and are dropped apart from it, so the form that nobody reads leaves first.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from cachetools import LRUCache

from tidelog.services.broker.shard.sent_entry import SentEntry

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


@dataclass(frozen=True)
class _Sent:
    """The key of an entry's batches as they were sent."""

    entry: EntryName

    @property
    def shard(self) -> int:
        return self.entry.shard


def _size_bytes(kept: _Kept | SentEntry) -> int:
    return kept.size_bytes


class HotTail:
    """Entries of at most `bytes_max` together, in both forms; the least recently used are dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._entries: LRUCache[EntryName | _Sent, _Kept | SentEntry] = LRUCache(bytes_max, getsizeof=_size_bytes)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        return int(self._entries.currsize)

    def get(self, name: EntryName) -> pa.Table | None:
        kept = self._entries.get(name)
        return kept.records if isinstance(kept, _Kept) else None

    def put(self, name: EntryName, records: pa.Table, held_bytes: int) -> None:
        """Keep an entry whose records keep `held_bytes` of memory alive, unless it alone exceeds the bound."""
        self._put(name, _Kept(records, held_bytes + ENTRY_OVERHEAD_BYTES))

    def sent(self, name: EntryName) -> SentEntry | None:
        """The batches of an entry as they were sent, if they are in memory."""
        kept = self._entries.get(_Sent(name))
        return kept if isinstance(kept, SentEntry) else None

    def put_sent(self, name: EntryName, sent: SentEntry | None) -> None:
        """Keep the batches of an entry, if it has any, unless they alone exceed the bound."""
        if sent is not None:
            self._put(_Sent(name), sent)

    def drop(self, shard: int) -> None:
        """Drop the entries of a shard that this broker no longer leads."""
        for name in [name for name in self._entries if name.shard == shard]:
            del self._entries[name]

    def _put(self, name: EntryName | _Sent, kept: _Kept | SentEntry) -> None:
        if kept.size_bytes <= self._entries.maxsize and name not in self._entries:
            self._entries[name] = kept
