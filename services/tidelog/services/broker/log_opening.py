"""What a new leader reads of its shard's log before it takes requests: the header and size of every entry.

The index gives most of them (`storage.wal_index`), the others are read one by one. For a log of 10,000 entries that is
some tens of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt, NotFound
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
    known = {entry.header.seq: entry for entry in await index.read(floor)}
    unknown = [seq for seq in range(floor, end) if seq not in known]
    for first in range(0, len(unknown), HEADER_READS_MAX):
        some = unknown[first : first + HEADER_READS_MAX]
        for entry in await asyncio.gather(*(_read(wal, seq) for seq in some)):
            if entry:
                known[entry.header.seq] = entry
    floor = (await wal.floor()).number
    for seq in range(floor, end):
        if seq not in known:
            raise Corrupt(wal.key(seq), "is missing, though later entries of its log exist")
    return OpenedLog(floor, [known[seq] for seq in range(floor, end)])


async def _read(wal: Wal, seq: int) -> IndexedEntry | None:
    """None if the floor passed the entry meanwhile, or else it is lost."""
    try:
        return IndexedEntry(*await wal.header_and_size(seq))
    except NotFound:
        return None
