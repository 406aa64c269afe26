"""Keeps a journal of groups short: writes snapshots, and deletes the entries that they cover.

A snapshot is due after `ENTRIES_MAX` entries, or when the entries since the last one are larger than the state. So a
start reads a bounded number of objects, and snapshots write at most about as many bytes as entries do. Snapshots are
written beside appends, which do not wait for them.

The newest snapshot and the one before it are kept, with all entries from the older one on. If the newest one is found
damaged, an operator can delete it: the state then follows from the older one, and nothing is lost. Whatever the older
one covers is deleted a grace after this process saw that snapshot, by its own monotonic clock: readers have that time
to finish, and `group_journal` relies on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from tidelog.coordinator.groups.journal.group_journal import GroupJournal
from tidelog.coordinator.groups.journal.journal_entry import encode_snapshot
from tidelog.storage.errors import Conflict
from tidelog.storage.in_flight import each_of
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.runtime import Runtime

ENTRIES_MAX = 500
LATER_BYTES_MIN = 1_000_000
"""No snapshot is written for fewer bytes of entries, unless `ENTRIES_MAX` is reached."""
_DELETES_AT_ONCE = 8


class JournalCompaction:
    """Compacts `journal`, whose writer is in this process. `grace_s`: `delete.grace.ms`."""

    def __init__(self, journal: GroupJournal, runtime: Runtime, *, grace_s: float) -> None:
        self._journal = journal
        self._clock = runtime.clock
        self._grace_s = grace_s
        self._seen_at_s: dict[int, float] = {}

    @property
    def due(self) -> bool:
        """Whether a snapshot is due."""
        state = self._journal.state
        entries = state.next_number - state.snapshot
        bytes_max = max(LATER_BYTES_MIN, state.keys.size_bytes)
        return entries >= ENTRIES_MAX or (entries > 0 and state.later_bytes >= bytes_max)

    async def run(self) -> None:
        """Write a snapshot, then delete what an earlier one covers. May run beside appends, not beside itself. Safe to
        repeat after any error. Raises `Unavailable`, `Denied`."""
        await self._write_snapshot()
        await self._delete_covered()

    async def _write_snapshot(self) -> None:
        state = self._journal.state
        number, later_bytes = state.next_number, state.later_bytes
        body = await encode_snapshot(number, state.epoch, state.complete_for, state.keys.items(), self._clock)
        with suppress(Conflict):  # of an earlier try: the state after these entries is always the same
            await self._journal.reader.snapshots.create(number, body)
        self._journal.state.snapshot_written(number, later_bytes)

    async def _delete_covered(self) -> None:
        snapshots = [number async for number in self._journal.reader.snapshots.numbers()]
        now_s = self._clock.monotonic()
        self._seen_at_s = {number: self._seen_at_s.get(number, now_s) for number in snapshots}
        old = [number for number in snapshots[:-1] if now_s - self._seen_at_s[number] >= self._grace_s]
        if old:
            await _delete_below(self._journal.reader.log, old[-1])
            await _delete_below(self._journal.reader.snapshots, old[-1])


async def _delete_below(log: ObjectLog, end: int) -> None:
    numbers = [number async for number in _below(log, end)]
    await each_of(numbers, log.delete, at_once=_DELETES_AT_ONCE)


async def _below(log: ObjectLog, end: int) -> AsyncIterator[int]:
    async for number in log.numbers():
        if number >= end:
            return
        yield number
