"""Recent WAL entries in memory, decoded, shared by all readers and bounded in bytes.

An entry is kept whole, as the table that was committed; a partition's records are a slice of it. So the cost of
keeping an entry follows its bytes, not the number of partitions in it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

ENTRY_OVERHEAD_BYTES = 8 * 1024
"""What an entry costs beside its records: Arrow's and Python's objects."""


@dataclass(frozen=True, order=True)
class EntryName:
    """Which WAL entry."""

    shard: int
    seq: int


@dataclass(frozen=True)
class _Kept:
    records: pa.Table
    held_bytes: int


class HotTail:
    """Entries by name, those used longest ago dropped first once they hold more than `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[EntryName, _Kept] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: EntryName) -> pa.Table | None:
        """The entry's records (`WAL_SCHEMA`), if they are here."""
        kept = self._entries.get(name)
        if kept is None:
            return None
        self._entries.move_to_end(name)
        return kept.records

    def drop(self, shard: int) -> None:
        """Let go of a shard's entries: this broker does not lead it any more."""
        for name in [name for name in self._entries if name.shard == shard]:
            self.held_bytes -= self._entries.pop(name).held_bytes

    def put(self, name: EntryName, records: pa.Table, held_bytes: int) -> None:
        """Keep an entry whose records keep `held_bytes` of memory alive, unless that alone is over the bound."""
        cost = held_bytes + ENTRY_OVERHEAD_BYTES
        if cost > self._bytes_max or name in self._entries:
            return
        self._entries[name] = _Kept(records, cost)
        self.held_bytes += cost
        while self.held_bytes > self._bytes_max:
            _, dropped = self._entries.popitem(last=False)
            self.held_bytes -= dropped.held_bytes
