"""The writer of a journal of groups: appends one entry at a time and is fenced by other writers.

    journal = GroupJournal(store, "embedded", runtime)
    await journal.claim()                       # an epoch of its own; fences the writer before it
    await journal.append(changes)

An append is a conditional create of the next number, as in the write-ahead log (`commit_fsm`):

- **Conflict, and the entry has our id**: it was created by an earlier try whose answer was lost.
- **Conflict, and the entry has our epoch or a later one**: another writer has the journal. `Fenced`, for good.
- **Conflict, and the entry has an earlier epoch**: a writer from before us, whose late create came first. Its entry is
  before ours, so it counts; ours gets the next number and replaces what both of them changed.
- **Unavailable, Denied**: the entry is in doubt. The next call settles it first: the same entry under the same number.

Hazard: compaction deletes entries that a snapshot covers, which frees their numbers. A writer that stalled for minutes
could create such a number again, and no reader would see its entry.
Defence, as in `floor_trust`: an entry is deleted no sooner than a grace after a snapshot beyond it was seen. So if a
create is answered within `trust_s` of a moment when the number before it was the newest, it is the first of its number.
A later answer counts only if a listing shows no snapshot beyond the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.journal.group_keys import GroupKeys
from tidelog.coordinator.groups.journal.journal_entry import (
    JournalEntry,
    StoredChange,
    encode_entry,
    stored_changes,
)
from tidelog.coordinator.groups.journal.journal_reading import JournalReader, JournalState
from tidelog.storage.errors import Conflict, Fenced, NotFound
from tidelog.storage.formats import GROUP_JOURNAL
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S


@dataclass
class _Pending:
    """An entry that may be in the bucket. `since_s`: when it was sent first."""

    entry: JournalEntry
    body: bytes
    since_s: float


class GroupJournal:
    """One writer of the journal `name`. Its calls must not overlap. `state` has every entry that is known to be in the
    journal. `trust_s` must be at most half of every compaction's grace."""

    def __init__(self, store: ObjectStore, name: str, runtime: Runtime, *, trust_s: float = FLOOR_TRUST_S) -> None:
        self.name = name
        self.reader = JournalReader(store, name)
        self.state = JournalState()
        self._runtime = runtime
        self._trust_s = trust_s
        self._epoch = 0
        self._newest_at_s = 0.0
        self._pending: _Pending | None = None
        self._fenced: Fenced | None = None

    @property
    def keys(self) -> GroupKeys:
        """The groups, according to the entries known so far."""
        return self.state.keys

    async def open(self, epoch: int) -> None:
        """Read the state, to append in `epoch`, which a coordinator assigned. Raises `Fenced` if the journal has a
        later one, `Corrupt`, `Unavailable`; after the latter two, open again."""
        await self._read()
        self._epoch = epoch
        if self.state.epoch > epoch:
            raise self._fence(self.state.epoch)

    async def claim(self) -> None:
        """Read the state and begin a new epoch with an entry of its own, so that `state` is exact and every earlier
        writer is fenced. Raises `Corrupt`, `Unavailable`, `Denied`; then claim again."""
        claimed = False
        while not claimed:
            await self._read()
            self._epoch = self.state.epoch + 1
            try:
                await self._commit(())
                claimed = True
            except Fenced:  # another process claimed this epoch first: claim the next one
                self._fenced = None

    async def append(self, changes: Sequence[Change], *, complete_for: int = 0) -> None:
        """Return once `changes` are in the journal. Raises `Fenced`, `Unavailable`, `Denied`, `Corrupt`."""
        await self.settle()
        await self._commit(stored_changes(changes), complete_for)

    async def settle(self) -> None:
        """Learn the outcome of an entry in doubt: afterwards it is in the journal. Raises as `append`."""
        if self._fenced:
            raise self._fenced
        if self._pending:
            await self._commit(self._pending.entry.changes, self._pending.entry.complete_for)

    async def _read(self) -> None:
        self._pending = None
        self._newest_at_s = self._now_s()
        self.state = await self.reader.read()

    async def _commit(self, changes: Sequence[StoredChange], complete_for: int = 0) -> None:
        """Create the entry in doubt, or else a new one with `changes`. If its number is taken by an entry from before
        this epoch, the changes get the next number."""
        pending = self._pending or self._new_entry(changes, complete_for)
        while not await self._create(pending):
            pending = self._new_entry(changes, complete_for)
        await self._prove_first(pending)
        self._pending = None
        self.state.apply(pending.entry, len(pending.body))

    async def _create(self, pending: _Pending) -> bool:
        """Whether `pending` has its number now."""
        self._pending = pending
        try:
            await self.reader.log.create(pending.entry.number, pending.body)
        except Conflict:
            return await self._own_entry_is_there(pending)
        return True

    async def _own_entry_is_there(self, pending: _Pending) -> bool:
        """Read the entry that has our number. If it is of an earlier epoch, apply it and return False."""
        try:
            found, size_bytes = await self.reader.entry(self.state.next_number)
        except NotFound:  # deleted since: others have gone on
            raise self._fence(self._epoch) from None
        if found.entry_id == pending.entry.entry_id:
            return True
        if found.epoch >= self._epoch:
            raise self._fence(found.epoch)
        self.state.apply(found, size_bytes)
        return False

    async def _prove_first(self, pending: _Pending) -> None:
        """Prove that our create of this number was the first one: by time, or by the snapshots."""
        asked_s = self._now_s()
        if asked_s - self._newest_at_s < self._trust_s:
            self._newest_at_s = pending.since_s
            return
        if await self.reader.snapshots.newest(self.state.next_number) > self.state.next_number:
            raise self._fence(self._epoch)
        self._newest_at_s = asked_s

    def _new_entry(self, changes: Sequence[StoredChange], complete_for: int) -> _Pending:
        entry = JournalEntry(
            format_version=GROUP_JOURNAL.newest,
            number=self.state.next_number,
            entry_id=self._runtime.entropy.new_id(),
            epoch=self._epoch,
            written_at_ms=self._runtime.clock.now_ms(),
            changes=tuple(changes),
            complete_for=complete_for,
        )
        return _Pending(entry, encode_entry(entry), self._now_s())

    def _fence(self, epoch: int) -> Fenced:
        self._fenced = Fenced(
            f"another broker writes the journal of groups {self.name!r} of this bucket (epoch {epoch}): this one "
            "coordinates no groups any more. Stop one of the two brokers, then restart the other"
        )
        return self._fenced

    def _now_s(self) -> float:
        return self._runtime.clock.monotonic()
