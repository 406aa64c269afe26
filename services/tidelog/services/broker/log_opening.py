"""What a new leader reads of its shard's log before it takes requests: the header and size of every entry.

The index gives most of them (`storage.wal_index`); those behind it are read one by one, their sizes from a listing. For
a log of 10,000 entries that is some tens of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.object_log import EntryInfo
from tidelog.storage.wal import Wal
from tidelog.storage.wal_index import IndexedEntry, WalIndex

HEADER_READS_MAX = 32


@dataclass(frozen=True)
class OpenedLog:
    """The log ``[floor, end)``, its entries in order."""

    floor: int
    entries: Sequence[IndexedEntry]


async def read_log(wal: Wal, index: WalIndex, end: int) -> OpenedLog:
    """The entries below `end` that are in the log now. What the floor passes meanwhile may have been made anew by a
    stalled writer, and is let go. Raises `Unavailable`, `Corrupt`."""
    floor = (await wal.floor()).number
    entries = [entry for entry in await index.read(floor) if entry.header.seq < end]
    listed = [info async for info in wal.entries(floor + len(entries)) if info.number < end]
    for first in range(0, len(listed), HEADER_READS_MAX):
        some = listed[first : first + HEADER_READS_MAX]
        entries += await asyncio.gather(*(_read(wal, info) for info in some))
    floor = (await wal.floor()).number
    return OpenedLog(floor, [entry for entry in entries if entry.header.seq >= floor])


async def _read(wal: Wal, info: EntryInfo) -> IndexedEntry:
    return IndexedEntry(await wal.header(info.number), info.size_bytes)
