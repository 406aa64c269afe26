"""Reads a journal of groups: the newest snapshot, then the entries from it on.

That takes two listings, one read of the snapshot, and a read of each later entry; compaction bounds these.

- An entry whose epoch is below that of an earlier entry does not count. A writer cannot append one (`group_journal`);
  this rule protects the offsets should it happen all the same.
- Entries below the newest snapshot do not count, and may be missing or reappear.
- If an entry is missing, another process may have written a newer snapshot and deleted the entry since the listing.
  The reader then begins again. If there is no newer snapshot, the entry is lost: `Corrupt`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tidelog.coordinator.groups.journal.group_keys import GroupKeys
from tidelog.coordinator.groups.journal.journal_entry import (
    SUFFIX,
    JournalEntry,
    changes_of,
    decode_entry,
    decode_snapshot,
)
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import group_snapshots_prefix, groups_prefix
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore

AT_ONCE = 32


@dataclass
class JournalState:
    """The state after all entries below `next_number`. `epoch`: the highest so far. `complete_for`: see `OffsetCopies`.
    `snapshot`: the number of the newest snapshot, 0 if there is none. `later_bytes`: the size of the entries from it
    on."""

    keys: GroupKeys = field(default_factory=GroupKeys)
    next_number: int = 0
    epoch: int = 0
    complete_for: int = 0
    snapshot: int = 0
    later_bytes: int = 0

    def apply(self, entry: JournalEntry, size_bytes: int) -> None:
        """Apply the next entry."""
        assert entry.number == self.next_number, (entry.number, self.next_number)
        self.next_number += 1
        self.later_bytes += size_bytes
        if entry.epoch < self.epoch:
            return
        self.epoch = entry.epoch
        self.complete_for = entry.complete_for or self.complete_for
        self.keys.apply(changes_of(entry))

    def snapshot_written(self, number: int, covered_bytes: int) -> None:
        """The snapshot `number` is in the bucket; `covered_bytes` of the later bytes are in it."""
        self.snapshot = number
        self.later_bytes -= covered_bytes


class JournalReader:
    """Reads the journal `name` of the bucket `store`."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self.log = ObjectLog(store, groups_prefix(name), SUFFIX)
        self.snapshots = ObjectLog(store, group_snapshots_prefix(name), SUFFIX)

    async def read(self) -> JournalState:
        """The newest state. Raises `Corrupt`, `Unavailable`."""
        newest = await self.snapshots.newest()
        while True:
            try:
                return await self.read_from(newest)
            except NotFound as error:
                before, newest = newest, await self.snapshots.newest()
                if newest == before:
                    raise Corrupt(str(error), "is missing, although later objects of the journal exist") from error

    async def entry(self, number: int) -> tuple[JournalEntry, int]:
        """Entry `number` and its size in bytes. Raises `NotFound`, `Corrupt`."""
        data = (await self.log.read(number)).data
        return decode_entry(self.log.key(number), number, data), len(data)

    async def read_from(self, snapshot: int, *, end: int | None = None) -> JournalState:
        """The state after the snapshot (-1: none) and the entries from it on, or those below `end`. Raises `NotFound`
        with the name of an object that is missing, `Corrupt`."""
        state = await self._snapshot(snapshot) if snapshot >= 0 else JournalState()
        numbers = self._numbers(state.next_number, end)
        async for number, read in in_order(numbers, self._listed, at_once=AT_ONCE):
            if number != state.next_number:
                raise NotFound(self.log.key(state.next_number))
            state.apply(*read)
        return state

    async def _numbers(self, start: int, end: int | None) -> AsyncIterator[int]:
        async for number in self.log.numbers(start):
            if end is not None and number >= end:
                return
            yield number

    async def _snapshot(self, number: int) -> JournalState:
        key = self.snapshots.key(number)
        try:
            data = (await self.snapshots.read(number)).data
        except NotFound:
            raise NotFound(key) from None
        found = decode_snapshot(key, number, data)
        state = JournalState(next_number=number, epoch=found.epoch, complete_for=found.complete_for, snapshot=number)
        state.keys.load(found.keys)
        return state

    async def _listed(self, number: int) -> tuple[JournalEntry, int]:
        try:
            return await self.entry(number)
        except NotFound:
            raise NotFound(self.log.key(number)) from None
