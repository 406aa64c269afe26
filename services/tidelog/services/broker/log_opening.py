"""What a new leader reads of its shard's log before it takes requests: the header and size of every entry.

The index gives most of them (`storage.wal_index`), the others are read one by one. For a log of 10,000 entries that is
some tens of requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.wal import Wal
from tidelog.storage.wal_entry import WalHeader
from tidelog.storage.wal_index import IndexedEntry, WalIndex

HEADER_READS_MAX = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedLog:
    """The log ``[floor, end)``, its entries in order."""

    floor: int
    entries: Sequence[IndexedEntry]


class LogOpening:
    """Reads the log of one shard, once: `known_end` first, then, when the end is claimed, `read`."""

    def __init__(self, wal: Wal, index: WalIndex) -> None:
        self._wal = wal
        self._index = index
        self._known: dict[int, IndexedEntry] = {}

    async def known_end(self) -> int:
        """The number after the last entry that the index knows, 0 without one. Raises `Unavailable`, `Corrupt`."""
        floor = (await self._wal.floor()).number
        known = {entry.header.seq: entry for entry in await self._index.read(floor)}
        if known and not await self._is_in_log(known[max(known)].header):
            _log.error(
                "the index of shard %d knows entry %d, which is not in the log: somebody has deleted entries, or the "
                "bucket is a copy that was made while it was written. The index is deleted; the log is what it is",
                self._wal.shard,
                max(known),
            )
            await self._index.discard()
            known = {}
        self._known = known
        return max(known, default=-1) + 1

    async def _is_in_log(self, header: WalHeader) -> bool:
        """Whether the log holds this very entry, and then all before it: an index that knows of another past must not
        be mixed with this one."""
        found = await self._read(header.seq)
        return found is not None and found.header.entry_id == header.entry_id

    async def read(self, end: int) -> OpenedLog:
        """The entries below `end` that are in the log now. What the floor passes meanwhile may have been made anew by
        a stalled writer, and is let go. Raises `Unavailable`, `Corrupt`."""
        known = self._known
        first = (await self._wal.floor()).number
        unknown = [seq for seq in range(first, end) if seq not in known]
        for place in range(0, len(unknown), HEADER_READS_MAX):
            found = await asyncio.gather(*(self._read(seq) for seq in unknown[place : place + HEADER_READS_MAX]))
            known.update((entry.header.seq, entry) for entry in found if entry)
        floor = (await self._wal.floor()).number
        for seq in range(floor, end):
            if seq not in known:
                raise Corrupt(self._wal.key(seq), "is missing, though later entries of its log exist")
        return OpenedLog(floor, [known[seq] for seq in range(floor, end)])

    async def _read(self, seq: int) -> IndexedEntry | None:
        """None if the floor passed the entry meanwhile, or else it is lost."""
        try:
            return IndexedEntry(*await self._wal.header_and_size(seq))
        except NotFound:
            return None
