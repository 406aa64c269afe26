"""Checks the index of a write-ahead log against its entries. The index is a copy of headers that proves nothing, so a
damaged block is a warning; but one that can be read and says otherwise than the log would mislead a leader.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from tidelog.storage.bucket.finding import Finding, Looked, Seen, Severity
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.wal_entry import WalHeader
from tidelog.storage.wal_index import BLOCK_ENTRIES, IndexedEntry, WalIndex, block_start, decode_block


class IndexCheck:
    """One run along with that over the log: `compare` for each entry, ascending, then `rest`."""

    def __init__(self, store: ObjectStore, shard: int) -> None:
        self._store = store
        self._shard = shard
        self._index = WalIndex(store, shard)
        self._start = -1
        self._entries: dict[int, IndexedEntry] = {}
        self._loaded: set[int] = set()

    async def compare(self, header: WalHeader, size_bytes: int) -> list[Finding]:
        """What is wrong with what the index says of an entry."""
        found = await self._load(block_start(header.seq))
        known = self._entries.get(header.seq)
        if known is not None and known != IndexedEntry(header, size_bytes):
            text = f"says otherwise of entry {header.seq} than the log does"
            found.append(Finding(Severity.ERROR, self._index.key(self._start), text))
        return found

    async def rest(self, floor: int, end: int, is_missing: Callable[[int], Awaitable[bool]]) -> AsyncIterator[Seen]:
        """The blocks of the index of a log that was found to be ``[floor, end)``: each is looked at, and entries it
        knows beyond the end are looked for."""
        for start in await self._index.blocks():
            if start + BLOCK_ENTRIES > floor and (start == self._start or start not in self._loaded):
                for finding in await self._load(start):
                    yield finding
                beyond = [seq for seq in sorted(self._entries) if seq >= end]
                if beyond and await is_missing(beyond[0]):
                    text = f"knows entries {beyond[0]} to {beyond[-1]}, which the log has lost (inv. 2)"
                    yield Finding(Severity.ERROR, self._index.key(start), text)
            yield Looked(0, waiting=start + BLOCK_ENTRIES <= floor)

    async def _load(self, start: int) -> list[Finding]:
        """Make the block that begins at `start` the present one."""
        if start == self._start:
            return []
        self._start, self._entries = start, {}
        self._loaded.add(start)
        key = self._index.key(start)
        try:
            entries = decode_block(key, (await self._store.get(key)).data)
        except NotFound:
            return []
        except Corrupt as error:
            text = f"{error.reason}; the log opens without it, only more slowly"
            return [Finding(Severity.WARNING, key, text)]
        self._entries = {entry.header.seq: entry for entry in entries}
        foreign = [entry.header for entry in entries if entry.header.shard != self._shard]
        if foreign:
            self._entries = {}
            return [Finding(Severity.ERROR, key, f"is the index of shard {foreign[0].shard}")]
        return []
