"""Reads a shard's log for a new leader, before it accepts requests: the header and size of every entry.

The index provides most of them (`storage.wal.wal_index`); the others are read one by one. A log of 10,000 entries takes
some tens of requests.

A missing or damaged entry between the floor and the end does not prevent opening. If the index contains its header, the
leader knows which offsets are lost. If not, the entry is a **hole**: the offsets around it show what it held, partition
by partition (`PartitionState.recover`). If a hole held the last records of a partition, nothing shows that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_index import IndexedEntry, WalIndex

HEADER_READS_MAX = 32

HOLES_MAX = 1_000
"""A log with more missing entries is not opened, because the cause is probably not damage."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedLog:
    """The log ``[floor, end)``: its entries in order, without the `holes`, whose headers are unknown."""

    floor: int
    entries: Sequence[IndexedEntry]
    holes: Sequence[int] = ()


class LogOpening:
    """Reads the log of one shard, once: first `known_end`; then, once the end is claimed, `read`."""

    def __init__(self, wal: Wal, index: WalIndex) -> None:
        self._wal = wal
        self._index = index
        self._known: dict[int, IndexedEntry] = {}
        self._known_end = 0

    async def known_end(self) -> int:
        """The number after the last entry that both the index and the log contain, 0 if there is none. Raises
        `Unavailable`, and `Corrupt` if the floor is damaged."""
        floor = (await self._wal.floor()).number
        known = {entry.header.seq: entry for entry in await self._index.read(floor)}
        last = await self._last_in_log(known)
        if known and last is None:
            await self._discard(max(known))
            known = {}
        self._known = known
        self._known_end = 0 if last is None else last + 1
        return self._known_end

    async def _last_in_log(self, known: dict[int, IndexedEntry]) -> int | None:
        """The last entry of the index that the log contains; all entries before it are in the log, or lost. None if the
        index belongs to another history, which must not be mixed with this log. The search goes back a bounded way."""
        latest = sorted(known)[-HEADER_READS_MAX:]
        found = [await self._read(latest[-1])] if latest else []
        if found == [None]:
            found = await asyncio.gather(*(self._read(seq) for seq in latest))
        there = [entry for entry in found if entry]
        if not there or any(known[entry.header.seq].header.entry_id != entry.header.entry_id for entry in there):
            return None
        return there[-1].header.seq

    async def read(self, end: int) -> OpenedLog:
        """The entries below `end`, the number after this leader's START. Entries that the floor passes meanwhile are
        dropped, since a stalled writer may have created them again. Raises `Unavailable`, and `Corrupt` if the floor or
        too many entries are damaged."""
        if max(self._known, default=-1) >= end - 1:  # the index goes beyond the log
            await self._discard(max(self._known))
            self._known = {seq: entry for seq, entry in self._known.items() if seq < self._known_end}
        first = (await self._wal.floor()).number
        sure = {seq for seq in self._known if seq < self._known_end}
        await self._read_each([seq for seq in range(first, end) if seq not in sure])
        floor = (await self._wal.floor()).number
        holes = [seq for seq in range(floor, end) if seq not in self._known]
        self._report(holes)
        return OpenedLog(floor, [self._known[seq] for seq in range(floor, end) if seq in self._known], holes)

    async def _read_each(self, seqs: Sequence[int]) -> None:
        """For a lost entry, what the index contains is kept."""
        for place in range(0, len(seqs), HEADER_READS_MAX):
            found = await asyncio.gather(*(self._read(seq) for seq in seqs[place : place + HEADER_READS_MAX]))
            self._known.update((entry.header.seq, entry) for entry in found if entry)

    async def _read(self, seq: int) -> IndexedEntry | None:
        """None if the floor has passed the entry meanwhile, or if it is lost."""
        try:
            return IndexedEntry(*await self._wal.header_and_size(seq))
        except (Corrupt, NotFound):
            return None

    async def _discard(self, last: int) -> None:
        _log.error(
            "the index of shard %d contains entry %d, which is not in the log: entries were deleted, or the bucket was "
            "copied while brokers wrote to it. The broker deletes the index and uses the log as it is",
            self._wal.shard,
            last,
        )
        await self._index.discard()

    def _report(self, holes: Sequence[int]) -> None:
        if not holes:
            return
        if len(holes) > HOLES_MAX:
            raise Corrupt(
                self._wal.key(holes[0]), f"is missing or damaged, and so are {len(holes) - 1} others of its log"
            )
        _log.error(
            "%d entries of shard %d are missing or damaged, and the index does not contain them: %s. Partitions "
            "whose last records were in them assign those offsets again",
            len(holes),
            self._wal.shard,
            ", ".join(map(self._wal.key, holes[:10])),
        )
