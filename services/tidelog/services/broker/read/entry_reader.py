"""WAL entries for readers: from memory, else from the bucket, each read once however many want it.

Reads from the bucket keep what they found apart from the hot tail and are bounded in number, so that a replay of old
records neither pushes recent ones out of memory nor slows produce.
"""

from __future__ import annotations

import asyncio

import pyarrow as pa

from tidelog.services.broker.read.hot_tail import EntryName, HotTail
from tidelog.services.broker.read.single_flight import SingleFlight
from tidelog.storage.wal import Wal


class EntryReader:
    """`read` raises `NotFound` once an entry is archived and deleted, `Unavailable`, `Corrupt`."""

    def __init__(self, hot_tail: HotTail, replayed: HotTail, reads: asyncio.Semaphore) -> None:
        self._hot_tail = hot_tail
        self._replayed = replayed
        self._reads = reads
        self._flights: SingleFlight[EntryName, pa.Table] = SingleFlight()

    def in_memory(self, name: EntryName) -> pa.Table | None:
        """The entry's records (`WAL_SCHEMA`) if that takes no read."""
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
