"""Checks the index of a write-ahead log against the entries.

The index is a copy of headers. A damaged block is a warning, because a log opens without its index. A readable block
that contradicts the log is an error, because it would mislead a leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from tidelog.storage.bucket.finding import UNREADABLE, Looked, Report, Severity, error, unreadable
from tidelog.storage.errors import NotFound
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.wal.wal_entry import WalHeader
from tidelog.storage.wal.wal_index import BLOCK_ENTRIES, IndexedEntry, WalIndex, block_start, decode_block


class IndexCheck:
    """One run. The check of the log calls `compare` for each entry, ascending, and then `check_rest`."""

    def __init__(self, store: ObjectStore, shard: int, report: Report) -> None:
        self._store = store
        self._shard = shard
        self._report = report
        self._index = WalIndex(store, shard)
        self._start = -1
        self._entries: dict[int, IndexedEntry] = {}
        self._loaded: set[int] = set()

    async def compare(self, header: WalHeader, size_bytes: int) -> None:
        """Check what the index has of one entry."""
        await self._load(block_start(header.seq))
        known = self._entries.get(header.seq)
        if known is not None and known != IndexedEntry(header, size_bytes):
            text = f"contradicts the log about entry {header.seq}"
            await self._report(error(self._index.key(self._start), text))

    async def check_rest(self, floor: int, end: int, is_missing: Callable[[int], Awaitable[bool]]) -> None:
        """Check all blocks of the index of a log that was found to be ``[floor, end)``. An entry that the index names
        beyond `end` is lost if `is_missing` confirms it."""
        for start in await self._index.blocks():
            if start + BLOCK_ENTRIES > floor and (start == self._start or start not in self._loaded):
                await self._load(start)
                beyond = [seq for seq in sorted(self._entries) if seq >= end]
                if beyond and await is_missing(beyond[0]):
                    text = f"names entries {beyond[0]} to {beyond[-1]}, which are missing in the log (inv. 2)"
                    await self._report(error(self._index.key(start), text))
            await self._report(Looked(0, waiting=start + BLOCK_ENTRIES <= floor))

    async def _load(self, start: int) -> None:
        """Make the block that begins at `start` the current one."""
        if start == self._start:
            return
        self._start, self._entries = start, {}
        self._loaded.add(start)
        key = self._index.key(start)
        try:
            entries = decode_block(key, (await self._store.get(key)).data)
        except NotFound:
            return
        except UNREADABLE as fault:
            found = unreadable(fault, harm="the log opens without it, only more slowly")
            await self._report(replace(found, severity=Severity.WARNING))
            return
        foreign = [entry.header.shard for entry in entries if entry.header.shard != self._shard]
        if foreign:
            await self._report(error(key, f"is the index of shard {foreign[0]}"))
        else:
            self._entries = {entry.header.seq: entry for entry in entries}
