"""Checks the coordinator's journal.

- The entries have no gaps, and each can be read.
- Each checkpoint equals the state after the entries before it. This and the entries' ids reveal an entry that was
  duplicated or replaced.
- The topics, the identity and the deletions in the newest state can be decoded.

A shallow check begins at the last checkpoint, like opening a journal; a deep check begins at the first entry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from tidelog.coordinator.cluster.identity import bucket_identity
from tidelog.coordinator.journal import (
    CHECKPOINT_EVERY,
    JOURNAL_SUFFIX,
    Journal,
    JournalEntry,
    applied,
    decode_entry,
)
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.storage.bucket.finding import UNREADABLE, Finding, Looked, Seen, Severity, unreadable
from tidelog.storage.errors import Corrupt, NewerFormat, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import META_PREFIX, number_of
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.runtime import Runtime

State = Mapping[str, msgspec.Raw]


class JournalCheck:
    """One check of the journal of the bucket `store`."""

    def __init__(self, store: ObjectStore, runtime: Runtime, *, deep: bool, at_once: int = 32) -> None:
        self._store = store
        self._log = ObjectLog(store, META_PREFIX, JOURNAL_SUFFIX)
        self._runtime = runtime
        self._deep = deep
        self._at_once = at_once
        self._expected = 0
        self._state: State | None = {}
        self._entry_id = ""
        self._readable = True

    async def findings(self) -> AsyncIterator[Seen]:
        """The findings, and `Looked` after each entry, for progress. Raises `Unavailable`."""
        last = max(await self._log.next_number() - 1, 0)
        first = 0 if self._deep else last - last % CHECKPOINT_EVERY
        async for seen in self._passed_over(first):
            yield seen
        self._state = {} if first == 0 else None  # None: unknown until the next checkpoint
        listed = list_all(self._store, META_PREFIX, start_after=self._log.before(first))
        async for info, entry in in_order(listed, self._read, at_once=self._at_once):
            for finding in self._entry_findings(info, entry):
                yield finding
            yield Looked(info.size)
        if self._readable:
            async for finding in self._contents():
                yield finding

    async def _passed_over(self, end: int) -> AsyncIterator[Seen]:
        """The entries that a shallow check does not read; it only checks that they exist."""
        async for entry in self._log.entries():
            if entry.number >= end:
                return
            if entry.number != self._expected:
                yield self._gap(entry.number)
            self._expected = entry.number + 1
            yield Looked(entry.size_bytes)

    async def _read(self, info: ObjectInfo) -> JournalEntry | Corrupt | NewerFormat | None:
        """None if the object is no entry or was deleted."""
        if number_of(info.key, META_PREFIX, JOURNAL_SUFFIX) is None:
            return None
        try:
            return decode_entry(info.key, (await self._store.get(info.key)).data)
        except NotFound:
            return None
        except UNREADABLE as error:
            return error

    def _entry_findings(self, info: ObjectInfo, entry: JournalEntry | Corrupt | NewerFormat | None) -> list[Finding]:
        number = number_of(info.key, META_PREFIX, JOURNAL_SUFFIX)
        if number is None:
            return [Finding(Severity.WARNING, info.key, "is not an object of Tidelog", info.size)]
        found = [self._gap(number)] if number != self._expected else []
        self._expected = number + 1
        if entry is None or isinstance(entry, UNREADABLE):
            self._state, self._readable = None, False
            gone = Finding(Severity.ERROR, info.key, "was listed and is gone", info.size)
            return [*found, unreadable(entry, info.size) if entry else gone]
        return found + [Finding(Severity.ERROR, info.key, text, info.size) for text in self._faults(number, entry)]

    def _gap(self, number: int) -> Finding:
        self._state, self._readable = None, False
        key = self._log.key(self._expected)
        return Finding(Severity.ERROR, key, f"is missing, with all up to entry {number - 1}: topics may be lost")

    def _faults(self, number: int, entry: JournalEntry) -> list[str]:
        faults = []
        if entry.entry_id == self._entry_id:
            faults.append("is a duplicate: it has the id of the entry before it")
        self._entry_id = entry.entry_id
        after = applied(self._state, entry.changes) if self._state is not None else None
        if number % CHECKPOINT_EVERY == 0:
            if entry.state is None:
                faults.append("must carry a checkpoint and carries none: it is another entry")
            elif after is not None and _plain(after) != _plain(entry.state):
                faults.append(
                    "its checkpoint differs from the state after the entries before it: one of them was altered"
                )
        self._state = entry.state if entry.state is not None else after
        return faults

    async def _contents(self) -> AsyncIterator[Finding]:
        """Check that the topics, the identity and the deletions in the newest state can be decoded."""
        journal = Journal(self._store, self._runtime)
        catalog = Catalog(journal, self._runtime)
        try:
            await journal.open()
            bucket_identity(journal)
            catalog.list_topics()
            catalog.removals()
        except UNREADABLE as error:
            yield unreadable(error)


def _plain(state: State) -> Mapping[str, bytes]:
    return {key: bytes(raw) for key, raw in state.items()}
