"""Reads WAL entries for fetches: from memory, otherwise from the bucket, once for all fetches that need an entry.

Entries read from the bucket are kept apart from the hot tail, and their reads are bounded in number. So a replay of old
records neither displaces recent ones from memory nor slows produce.
"""

from __future__ import annotations

import asyncio

import pyarrow as pa

from tidelog.services.broker.shard.hot_tail import EntryName, HotTail
from tidelog.storage.single_flight import SingleFlight
from tidelog.storage.wal.wal import Wal


class EntryReader:
    """`read` raises `NotFound` once an entry is archived and deleted, `Unavailable`, `Corrupt`."""

    def __init__(self, hot_tail: HotTail, replayed: HotTail, reads: asyncio.Semaphore) -> None:
        self._hot_tail = hot_tail
        self._replayed = replayed
        self._reads = reads
        self._flights: SingleFlight[EntryName, pa.Table] = SingleFlight()

    @property
    def hot_tail(self) -> HotTail:
        """The recent entries."""
        return self._hot_tail

    def in_memory(self, name: EntryName) -> pa.Table | None:
        """The entry's records (`WAL_SCHEMA`) if they are in memory."""
        records = self._hot_tail.get(name)
        return records if records is not None else self._replayed.get(name)

    async def read(self, wal: Wal, name: EntryName) -> pa.Table:
        """The entry's records (`WAL_SCHEMA`) from the bucket."""
        return await self._flights.run(name, lambda: self._fetch(wal, name))

    async def _fetch(self, wal: Wal, name: EntryName) -> pa.Table:
        async with self._reads:
            stored = await wal.log.read(name.seq)
            entry = await asyncio.to_thread(wal.decode, name.seq, stored.data)
        self._replayed.put(name, entry.records, entry.records.nbytes)
        return entry.records
