"""Reads a write-ahead log for the archiver, from its position on, and skips lost entries.

The position is the floor, or beyond it while damage holds the floor. If a committed entry is missing or its bytes are
damaged, it is noted as lost (`archive_damage`), and reading continues after it. The floor is read before and after each
run: entries below it are no longer part of the log (`wal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from tidelog.storage.archive.archive_damage import LOST_AT_ONCE_MAX, ArchiveDamage, LostEntry
from tidelog.storage.errors import Corrupt
from tidelog.storage.runtime import Clock
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import WalEntry
from tidelog.storage.wal.wal_run import read_run, width_after

IS_MISSING = "is missing, though later entries of its log exist"


class ArchiveCursor:
    """The cursor of one archiver. `position` is the number of the next entry to archive; everything below it is
    archived, except for `damage`. `floor` is the floor as it was last seen."""

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
        """Read the floor, and forget entries below it. Once it has passed a lost entry, reading begins again at the
        floor: archived records are skipped, and the floor can move on."""
        self.floor = (await self._wal.floor()).number
        given_up = self._damage.floor_is(self.floor, self._clock.monotonic())
        self.position = self.floor if given_up else max(self.position, self.floor)
        return self.floor

    async def read(self, up_to: int | None) -> Sequence[WalEntry]:
        """The next entries below `up_to` (None: all), as many as fit into memory; lost ones are noted. Call `see_floor`
        first. Raises `Unavailable`."""
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
        """Whether a lost entry can be read again, because somebody has restored it. Raises `Unavailable`."""
        try:
            return bool(await read_run(self._wal, lost.seq, lost.seq + 1, 0, self._executor))
        except Corrupt:
            return False

    async def _run(self, up_to: int | None) -> tuple[Sequence[WalEntry], Corrupt | None]:
        """Entries, or the reason why the first of them is missing; neither at the end of the log."""
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
