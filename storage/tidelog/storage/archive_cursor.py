"""Reads a write-ahead log for the archiver, from where archiving stands, and goes over entries that are lost.

The cursor stands at the floor, or beyond it while damage holds the floor. A committed entry that is missing, or whose
bytes are not what was written, is noted as lost (`archive_damage`), and reading goes on behind it. The floor is read
before and after each run: what it has passed is not in the log any more (`wal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from tidelog.storage.archive_damage import LOST_AT_ONCE_MAX, ArchiveDamage, LostEntry
from tidelog.storage.errors import Corrupt
from tidelog.storage.runtime import Clock
from tidelog.storage.wal import Wal
from tidelog.storage.wal_entry import WalEntry
from tidelog.storage.wal_run import read_run, width_after

IS_MISSING = "is missing, though later entries of its log exist"


class ArchiveCursor:
    """Of one archiver. `position` is the number of the next entry to archive; what lies below it is archived, but for
    what `damage` tells. `floor` is the floor as it was last seen."""

    def __init__(
        self, wal: Wal, damage: ArchiveDamage, clock: Clock, batch_bytes: int, executor: Executor | None
    ) -> None:
        self._wal = wal
        self._damage = damage
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._executor = executor
        self._width = 1
        self.position = 0
        self.floor = 0

    async def see_floor(self) -> int:
        """Read the floor, and let go of what lies below it. Once it has passed a lost entry, reading begins there anew:
        what is archived already is skipped, and the floor can move on."""
        self.floor = (await self._wal.floor()).number
        given_up = self._damage.floor_is(self.floor, self._clock.monotonic())
        self.position = self.floor if given_up else max(self.position, self.floor)
        return self.floor

    async def read(self, up_to: int | None) -> Sequence[WalEntry]:
        """The next entries below `up_to` (None: all there are), as many as fit into memory; those that are lost are
        noted. `see_floor` comes first. Raises `Unavailable`."""
        for _ in range(LOST_AT_ONCE_MAX):
            start = self.position
            entries, fault = await self._run(up_to)
            if not entries and fault is None:
                break
            await self.see_floor()
            if entries:
                self._width = width_after(entries)
                return [entry for entry in entries if entry.header.seq >= self.floor]
            if fault and self.position == start:
                self._damage.lose(LostEntry(start, fault), self._clock.monotonic())
                self.position = start + 1
        return ()

    async def is_back(self, lost: LostEntry) -> bool:
        """Whether a lost entry can be read again: somebody has put it back. Raises `Unavailable`."""
        try:
            return bool(await read_run(self._wal, lost.seq, lost.seq + 1, 0, self._executor))
        except Corrupt:
            return False

    async def _run(self, up_to: int | None) -> tuple[Sequence[WalEntry], Corrupt | None]:
        """Entries, or why the first of them is not there; neither at the end of the log."""
        if up_to is not None and self.position >= up_to:
            return (), None
        width = 1 if up_to is None else self._width
        try:
            entries = await read_run(self._wal, self.position, up_to, self._batch_bytes, self._executor, width=width)
        except Corrupt as error:
            return (), error
        if entries or up_to is None:
            return entries, None
        return (), Corrupt(self._wal.key(self.position), IS_MISSING)
