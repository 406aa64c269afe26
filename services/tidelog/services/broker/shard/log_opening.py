"""What a new leader reads of its shard's log before it takes requests: the header and size of every entry.

The index gives most of them (`storage.wal_index`), the others are read one by one. For a log of 10,000 entries that is
some tens of requests.

An entry between the floor and the end that is missing or damaged does not keep the log from being opened. If the index
knows its header, the leader knows which offsets are lost. If not, the entry is a **hole**: what it held is told by the
offsets around it, partition by partition (`PartitionState.recover`). Nothing tells it of a partition whose last records
were in a hole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.wal import Wal
from tidelog.storage.wal_index import IndexedEntry, WalIndex

HEADER_READS_MAX = 32

HOLES_MAX = 1_000
"""A log that lacks more entries than this is not opened: something else is wrong."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedLog:
    """The log ``[floor, end)``: its entries in order, but for the `holes`, of which nothing is known."""

    floor: int
    entries: Sequence[IndexedEntry]
    holes: Sequence[int] = ()


class LogOpening:
    """Reads the log of one shard, once: `known_end` first, then, when the end is claimed, `read`."""

    def __init__(self, wal: Wal, index: WalIndex) -> None:
        self._wal = wal
        self._index = index
        self._known: dict[int, IndexedEntry] = {}
        self._known_end = 0

    async def known_end(self) -> int:
        """The number after the last entry that the index knows and that is in the log, 0 without one. Raises
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
        """The last entry of the index that the log holds, and then it holds all before it, but for what is lost: an
        index that knows of another past must not be mixed with this one. It is looked for a bounded way back."""
        latest = sorted(known)[-HEADER_READS_MAX:]
        found = [await self._read(latest[-1])] if latest else []
        if found == [None]:
            found = await asyncio.gather(*(self._read(seq) for seq in latest))
        there = [entry for entry in found if entry]
        if not there or any(known[entry.header.seq].header.entry_id != entry.header.entry_id for entry in there):
            return None
        return there[-1].header.seq

    async def read(self, end: int) -> OpenedLog:
        """The entries below `end`, which is the number after this leader's START. What the floor passes meanwhile may
        have been made anew by a stalled writer, and is let go. Raises `Unavailable`, and `Corrupt` if the floor is
        damaged or too many entries are."""
        if max(self._known, default=-1) >= end - 1:  # the log ends before what the index knows
            await self._discard(max(self._known))
            self._known = {seq: entry for seq, entry in self._known.items() if seq < self._known_end}
        first = (await self._wal.floor()).number
        sure = {seq for seq in self._known if seq < self._known_end}
        await self._read_each([seq for seq in range(first, end) if seq not in sure])
        floor = (await self._wal.floor()).number
        holes = [seq for seq in range(floor, end) if seq not in self._known]
        self._tell(holes)
        return OpenedLog(floor, [self._known[seq] for seq in range(floor, end) if seq in self._known], holes)

    async def _read_each(self, seqs: Sequence[int]) -> None:
        """Of those that are lost, what the index knows stays."""
        for place in range(0, len(seqs), HEADER_READS_MAX):
            found = await asyncio.gather(*(self._read(seq) for seq in seqs[place : place + HEADER_READS_MAX]))
            self._known.update((entry.header.seq, entry) for entry in found if entry)

    async def _read(self, seq: int) -> IndexedEntry | None:
        """None if the floor passed the entry meanwhile, or else it is lost."""
        try:
            return IndexedEntry(*await self._wal.header_and_size(seq))
        except (Corrupt, NotFound):
            return None

    async def _discard(self, last: int) -> None:
        _log.error(
            "the index of shard %d knows entry %d, which is not in the log: somebody has deleted entries, or the "
            "bucket is a copy that was made while it was written. The index is deleted; the log is what it is",
            self._wal.shard,
            last,
        )
        await self._index.discard()

    def _tell(self, holes: Sequence[int]) -> None:
        if not holes:
            return
        if len(holes) > HOLES_MAX:
            raise Corrupt(self._wal.key(holes[0]), f"is missing or damaged, as are {len(holes) - 1} others of its log")
        _log.error(
            "%d entries of shard %d are missing or damaged, and the index does not know them: %s. Partitions "
            "whose last records were in them give out those offsets again",
            len(holes),
            self._wal.shard,
            ", ".join(map(self._wal.key, holes[:10])),
        )
