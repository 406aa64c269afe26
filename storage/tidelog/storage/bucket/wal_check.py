"""Checks one write-ahead log: entries from the floor on without a gap, epochs that never decrease (inv. 3), per
partition dense offsets (inv. 4), and the index that copies the entries' headers. What it holds of each partition is
kept for the check against manifests.

Safe beside a running broker: an entry that vanishes while it is looked at is looked for below the floor. What lies
below the floor waits for its deletion (inv. 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tidelog.storage.bucket.finding import Finding, Looked, Seen, Severity
from tidelog.storage.bucket.index_check import IndexCheck
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import TopicPartition, floor_key
from tidelog.storage.object_log import EntryInfo
from tidelog.storage.wal import Floor, Wal
from tidelog.storage.wal_entry import EntryKind, WalHeader

DEEP_AT_ONCE_MAX = 4
"""Whole entries in memory at a time."""


@dataclass(frozen=True)
class Stretch:
    """Offsets ``[base_offset, next_offset)`` of a partition in the WAL of `shard`, the first of them in entry `key`."""

    key: str
    base_offset: int
    next_offset: int
    shard: int = 0


_Answer = WalHeader | Corrupt | NotFound


class WalCheck:
    """One run over `wal`. `stretches` grows with it: what the log holds of each partition; `below` likewise, for the
    entries that lie below the floor still."""

    def __init__(self, wal: Wal, index: IndexCheck | None = None, *, deep: bool = False, at_once: int = 16) -> None:
        self._wal = wal
        self._index = index
        self._deep = deep
        self._at_once = min(at_once, DEEP_AT_ONCE_MAX) if deep else at_once
        self._floor = Floor()
        self._epoch = 0
        self.stretches: dict[TopicPartition, Stretch] = {}
        self.below: dict[TopicPartition, Stretch] = {}

    async def findings(self) -> AsyncIterator[Seen]:
        """What is wrong, and between that each object once it is looked at. Raises `Unavailable`."""
        try:
            self._floor = await self._wal.floor()
        except Corrupt as error:
            yield Finding(Severity.ERROR, error.name, error.reason)
            return
        if self._floor.version is not None:
            yield Looked(0)
        self._epoch = self._floor.epoch
        expected = self._floor.number
        async for entry, answer in in_order(self._wal.entries(), self._read, at_once=self._at_once):
            if entry.number < self._floor.number:
                self._note_below(answer)
                yield Looked(entry.size_bytes, waiting=True)
                continue
            if entry.number != expected and not await self._was_truncated(expected):
                yield self._gap(expected, entry.number)
            expected = entry.number + 1
            for finding in await self._entry_findings(entry, answer):
                yield finding
            yield Looked(entry.size_bytes)
        if self._index is not None:
            async for seen in self._index.rest(self._floor.number, expected, self._is_missing):
                yield seen

    async def _read(self, entry: EntryInfo) -> _Answer:
        try:
            if not self._deep or entry.number < self._floor.number:
                return await self._wal.header(entry.number)
            stored = await self._wal.log.read(entry.number)
            return (await asyncio.to_thread(self._wal.decode, entry.number, stored.data)).header
        except (Corrupt, NotFound) as error:
            return error

    async def _was_truncated(self, number: int) -> bool:
        return (await self._wal.floor()).number > number

    async def _is_missing(self, number: int) -> bool:
        """Whether an entry that somebody knows of is lost."""
        try:
            await self._wal.header(number)
        except NotFound:
            return not await self._was_truncated(number)
        except Corrupt:
            return False  # it is there, and newer than this run
        return False

    def _gap(self, first: int, end: int) -> Finding:
        if self._floor.version is None and first == 0:
            text = f"is missing, or entries 0 to {end - 1} of its log are, without which no floor can be"
            return Finding(Severity.ERROR, floor_key(self._wal.shard), text)
        return Finding(Severity.ERROR, self._wal.key(first), f"is missing, with all up to entry {end - 1} (inv. 6)")

    async def _entry_findings(self, entry: EntryInfo, answer: _Answer) -> list[Finding]:
        key = self._wal.key(entry.number)
        if isinstance(answer, Corrupt):
            return [Finding(Severity.ERROR, answer.name, answer.reason, entry.size_bytes)]
        if isinstance(answer, NotFound):
            if await self._was_truncated(entry.number):
                return []
            return [Finding(Severity.ERROR, key, "was listed and is gone, though the floor has not passed it")]
        texts = [*self._epoch_faults(answer), *self._span_faults(key, answer)]
        found = [Finding(Severity.ERROR, key, text, entry.size_bytes) for text in texts]
        if self._index is not None:
            found += await self._index.compare(answer, entry.size_bytes)
        return found

    def _epoch_faults(self, header: WalHeader) -> list[str]:
        before, self._epoch = self._epoch, max(self._epoch, header.epoch)
        if header.epoch < before:
            return [f"is of epoch {header.epoch}, after one of {before} (inv. 3)"]
        begins = header.kind is EntryKind.START
        if header.epoch > before and not begins and header.seq > self._floor.number:
            return [f"is of epoch {header.epoch}, which no START entry begins"]
        return []

    def _span_faults(self, key: str, header: WalHeader) -> list[str]:
        texts = []
        for span in header.spans:
            before = self.stretches.get(span.topic_partition)
            if before and before.next_offset != span.base_offset:
                place = f"{span.topic_partition.topic_id}/{span.topic_partition.partition}"
                texts.append(f"holds offset {span.base_offset} of {place} after {before.next_offset - 1} (inv. 4)")
            first = before or Stretch(key, span.base_offset, span.base_offset, self._wal.shard)
            self.stretches[span.topic_partition] = Stretch(
                first.key, first.base_offset, span.next_offset, self._wal.shard
            )
        return texts

    def _note_below(self, answer: _Answer) -> None:
        if not isinstance(answer, WalHeader):
            return  # garbage that is damaged or gone by now
        for span in answer.spans:
            before = self.below.get(span.topic_partition)
            if before is None or span.next_offset > before.next_offset:
                key = self._wal.key(answer.seq)
                self.below[span.topic_partition] = Stretch(key, span.base_offset, span.next_offset, self._wal.shard)
