"""The coordinator's journal: keys and values, stored durably as an object log under ``meta/``.

An entry is a JSON object: the changes, an id by which its writer recognizes it, a format version, and a checksum (which
entries of older versions lack). Every `CHECKPOINT_EVERY`-th entry also carries the whole state after it, so opening a
journal of any length takes one listing and at most that many reads.

Any number of processes may write. `update` decides on the newest state that it has read and creates the next entry. If
another process was first, it reads that entry and decides again, so every decision is based on all entries before its
own. Errors: `Unavailable` means that the entry may or may not exist; the next call reads the journal to find out.
`Corrupt` names the entry that cannot be read.

`catch_up` and `update` may overlap: an entry is applied by the first call that has it, and only as the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from tidelog.storage.errors import Conflict, Corrupt, NotFound, Unavailable
from tidelog.storage.formats import JOURNAL
from tidelog.storage.json_checksum import check_checksum, with_checksum
from tidelog.storage.layout import META_PREFIX
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

JOURNAL_SUFFIX = ".json"
CHECKPOINT_EVERY = 64


class Put(msgspec.Struct, frozen=True, tag="put", tag_field="do"):
    """Set `key` to `value`, a JSON text."""

    key: str
    value: msgspec.Raw


class Delete(msgspec.Struct, frozen=True, tag="delete", tag_field="do"):
    """Remove `key`."""

    key: str


Change = Put | Delete


class JournalEntry(msgspec.Struct, frozen=True):
    """One entry. `state` is the whole state after `changes`, in a checkpoint only."""

    format_version: int
    entry_id: str
    written_at_ms: int
    changes: tuple[Change, ...]
    state: dict[str, msgspec.Raw] | None = None


class _Version(msgspec.Struct):
    format_version: int


class JournalObserver(Protocol):
    """Called synchronously on the event loop; must not block or raise."""

    def advanced(self) -> None:
        """The journal's state has changed."""
        ...

    def appended(self) -> None:
        """This process has written an entry."""
        ...


class Journal:
    """The state after all entries below `next_number`."""

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._log = ObjectLog(store, META_PREFIX, JOURNAL_SUFFIX)
        self._runtime = runtime
        self._state: dict[str, msgspec.Raw] = {}
        self._next = 0
        self._outcome_unknown = False
        self._writing = asyncio.Lock()
        self._observers: list[JournalObserver] = []

    def observe(self, observer: JournalObserver) -> None:
        """Call `observer` from now on."""
        self._observers.append(observer)

    @property
    def next_number(self) -> int:
        """The number of the next entry, according to the entries read so far."""
        return self._next

    def get(self, key: str) -> msgspec.Raw | None:
        """The JSON text under `key`; the same object until the key is put again."""
        return self._state.get(key)

    def items(self, prefix: str) -> Iterator[tuple[str, msgspec.Raw]]:
        """The keys that start with `prefix` and their values, in ascending order."""
        return ((key, self._state[key]) for key in sorted(self._state) if key.startswith(prefix))

    async def open(self) -> None:
        """Read the state from the bucket: a listing, then the entries from the last checkpoint on."""
        last = -1
        async for number in self._log.numbers():
            last = number
        if last < 0:
            return
        first = last - last % CHECKPOINT_EVERY
        entries = await asyncio.gather(*(self._read_listed(number) for number in range(first, last + 1)))
        self._next = first  # a checkpoint, which does not need the entries before it
        for number, entry in enumerate(entries, first):
            self._apply(number, entry)

    async def catch_up(self) -> None:
        """Read the entries that were written since the last read."""
        while True:
            number = self._next
            try:
                entry = await self._read(number)
            except NotFound:
                return
            self._apply(number, entry)

    async def update(self, decide: Callable[[], Sequence[Change]]) -> None:
        """Write the changes that `decide` makes of the newest state; raises what `decide` raises. It may be called
        again."""
        async with self._writing:
            if self._outcome_unknown:
                await self.catch_up()
                self._outcome_unknown = False
            while changes := decide():
                if await self._append(tuple(changes)):
                    return

    async def _append(self, changes: tuple[Change, ...]) -> bool:
        """Create the next entry. If another process's entry has its number, apply that one and return False."""
        number = self._next
        entry = self._entry(number, changes)
        try:
            await self._log.create(number, encode_entry(entry))
        except Conflict:
            found = await self._read(number)
            self._apply(number, found)
            if found.entry_id != entry.entry_id:
                return False
            # our own entry: the answer to an earlier create was lost
        except Unavailable:
            self._outcome_unknown = True
            raise
        self._apply(number, entry)
        for observer in self._observers:
            observer.appended()
        return True

    def _entry(self, number: int, changes: tuple[Change, ...]) -> JournalEntry:
        checkpoint = applied(self._state, changes) if number % CHECKPOINT_EVERY == 0 else None
        return JournalEntry(
            JOURNAL.newest,
            self._runtime.entropy.new_id(),
            self._runtime.clock.now_ms(),
            changes,
            checkpoint,
        )

    def _apply(self, number: int, entry: JournalEntry) -> None:
        if number != self._next:
            return  # `catch_up` and `update` overlapped, and the other one has applied it
        self._state = dict(entry.state) if entry.state is not None else applied(self._state, entry.changes)
        self._next = number + 1
        for observer in self._observers:
            observer.advanced()

    async def _read_listed(self, number: int) -> JournalEntry:
        try:
            return await self._read(number)
        except NotFound as error:
            raise Corrupt(self._log.key(number), "is missing, although later entries exist") from error

    async def _read(self, number: int) -> JournalEntry:
        return decode_entry(self._log.key(number), (await self._log.read(number)).data)


def encode_entry(entry: JournalEntry) -> bytes:
    """`entry` as it is stored, with its checksum."""
    return with_checksum(msgspec.json.encode(entry))


def decode_entry(key: str, data: bytes) -> JournalEntry:
    """The entry in `data`. Raises `Corrupt` naming `key`."""
    try:
        version = msgspec.json.decode(data, type=_Version).format_version
        check_checksum(key, data)
        JOURNAL.check(key, version)
        return msgspec.json.decode(data, type=JournalEntry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(key, f"is no journal entry: {error}") from error


def applied(state: Mapping[str, msgspec.Raw], changes: Sequence[Change]) -> dict[str, msgspec.Raw]:
    """`state` with `changes` applied."""
    after = dict(state)
    for change in changes:
        if isinstance(change, Put):
            after[change.key] = change.value
        else:
            after.pop(change.key, None)
    return after
