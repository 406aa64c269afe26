"""Reads a write-ahead log for the archiver, from its position on, and skips lost entries.

The position is the floor, or beyond it while damage holds the floor. If a committed entry is missing or its bytes are
damaged, it is noted as lost (`archive_damage`), and reading continues after it. Before that the floor is read: an entry
below it is no longer part of the log, so it may be missing (inv. 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from tidelog.storage.archive.archive_damage import LOST_AT_ONCE_MAX, ArchiveDamage, Stuck
from tidelog.storage.errors import Conflict, Corrupt
from tidelog.storage.runtime import Clock
from tidelog.storage.wal.floor import Floor, Floors
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_run import read_run, width_after

IS_MISSING = "is missing, though later entries of its log exist"


class WalCursor:
    """The cursor of one archiver. `position` is the number of the next entry to archive; everything below it is
    archived, except for `damage`."""

    def __init__(
        self, wal: Wal, floors: Floors, damage: ArchiveDamage, clock: Clock, batch_bytes: int, executor: Executor | None
    ) -> None:
        self._wal = wal
        self._floors = floors
        self._damage = damage
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._executor = executor
        self._width = 1
        self.position = 0

    def floor_is(self, number: int) -> None:
        """Forget entries below the floor. Once it has passed a lost entry, reading begins again at the floor: archived
        records are skipped, and the floor can move on."""
        given_up = self._damage.floor_is(number, self._clock.monotonic())
        self.position = number if given_up else max(self.position, number)

    async def read(self, end: int | None) -> Sequence[StoredEntry]:
        """The next entries below `end` (None: all), as many as fit into memory; lost ones are noted. Raises
        `Unavailable`."""
        for _ in range(LOST_AT_ONCE_MAX):
            while self.position in self._damage.entries:
                self.position += 1
            start = self.position
            entries, fault = await self._run(self._end(end))
            if entries or fault is None:
                return entries
            self.floor_is((await self._floors.floor()).number)
            if self.position == start:
                self.lose(start, fault)
                self.position = start + 1
        return ()

    def lose(self, seq: int, fault: Corrupt) -> None:
        """Note that entry `seq` is lost."""
        self._damage.note(seq, Stuck(fault), self._clock.monotonic())

    async def is_back(self, seq: int) -> bool:
        """Whether lost entry `seq` can be read again, because somebody has restored it. Raises `Unavailable`."""
        try:
            found = await read_run(self._wal, seq, seq + 1, 0, self._executor)
            return all(entry.records.num_rows >= 0 for entry in found) and bool(found)
        except Corrupt:
            return False

    async def expect_floor(self, floor: Floor) -> None:
        """Raise `Conflict` if the floor has moved on from `floor`: then the entries that were read may be below it,
        deleted and created again by stalled writers, so they say nothing of damage. Raises `Unavailable`."""
        if await self._floors.floor() != floor:
            raise Conflict("another archiver was faster: entries that were read may be below the floor")

    def _end(self, end: int | None) -> int | None:
        """Where a run from the position on has to end: before the next lost entry."""
        lost = [seq for seq in self._damage.entries if seq > self.position]
        return min([*lost, *([] if end is None else [end])], default=None)

    async def _run(self, end: int | None) -> tuple[Sequence[StoredEntry], Corrupt | None]:
        """Entries, or the reason why the first of them is missing; neither at the end of the log."""
        if end is not None and self.position >= end:
            return (), None
        width = 1 if end is None else self._width
        try:
            entries = await read_run(self._wal, self.position, end, self._batch_bytes, self._executor, width=width)
        except Corrupt as error:
            return (), error
        if entries:
            self._width = width_after(entries)
        if entries or end is None:
            return entries, None
        return (), Corrupt(self._wal.key(self.position), IS_MISSING)
