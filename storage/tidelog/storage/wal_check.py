"""Checks one write-ahead log: entries from the floor on without a gap, epochs that never decrease (inv. 3), and per
partition dense offsets (inv. 4). What it holds of each partition is kept for the check against manifests.

Safe beside a running broker: an entry that vanishes while it is looked at is looked for below the floor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.finding import Finding, Severity
from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_log import EntryInfo
from tidelog.storage.wal import Floor, Wal
from tidelog.storage.wal_entry import EntryKind, WalHeader


@dataclass(frozen=True)
class Stretch:
    """Offsets ``[base_offset, next_offset)`` of a partition in a WAL, the first of them in the entry `key`."""

    key: str
    base_offset: int
    next_offset: int


class WalCheck:
    """One run over `wal`. `stretches` grows with it."""

    def __init__(self, wal: Wal, *, deep: bool) -> None:
        self._wal = wal
        self._deep = deep
        self._epoch = 0
        self.stretches: dict[TopicPartition, Stretch] = {}

    async def findings(self) -> AsyncIterator[Finding | EntryInfo]:
        """What is wrong, and between that each entry once it is looked at."""
        try:
            floor = await self._wal.floor()
        except Corrupt as error:
            yield Finding(Severity.ERROR, error.name, error.reason)
            return
        self._epoch = floor.epoch
        expected = floor.number
        async for entry in self._wal.entries():
            if entry.number < floor.number:
                yield Finding(Severity.ORPHAN, self._wal.key(entry.number), "is below the floor", entry.size_bytes)
            else:
                if entry.number != expected and not await self._was_truncated(expected):
                    yield self._gap(expected, entry.number)
                expected = entry.number + 1
                for finding in await self._entry_findings(entry, floor):
                    yield finding
            yield entry

    async def _was_truncated(self, number: int) -> bool:
        return (await self._wal.floor()).number > number

    def _gap(self, first: int, end: int) -> Finding:
        return Finding(Severity.ERROR, self._wal.key(first), f"is missing, with all up to entry {end - 1}")

    async def _entry_findings(self, entry: EntryInfo, floor: Floor) -> list[Finding]:
        key = self._wal.key(entry.number)
        try:
            header = (await self._wal.read(entry.number)).header if self._deep else await self._wal.header(entry.number)
        except Corrupt as error:
            return [Finding(Severity.ERROR, error.name, error.reason, entry.size_bytes)]
        except NotFound:
            if await self._was_truncated(entry.number):
                return []
            return [Finding(Severity.ERROR, key, "was listed and is gone, though the floor has not passed it")]
        texts = [*self._epoch_faults(header, floor), *self._span_faults(key, header)]
        return [Finding(Severity.ERROR, key, text, entry.size_bytes) for text in texts]

    def _epoch_faults(self, header: WalHeader, floor: Floor) -> list[str]:
        before, self._epoch = self._epoch, max(self._epoch, header.epoch)
        if header.epoch < before:
            return [f"is of epoch {header.epoch}, after one of {before} (inv. 3)"]
        begins = header.kind is EntryKind.START
        if header.epoch > before and not begins and header.seq > floor.number:
            return [f"is of epoch {header.epoch}, which no START entry begins"]
        return []

    def _span_faults(self, key: str, header: WalHeader) -> list[str]:
        texts = []
        for span in header.spans:
            before = self.stretches.get(span.topic_partition)
            if before and before.next_offset != span.base_offset:
                place = f"{span.topic_partition.topic_id}/{span.topic_partition.partition}"
                texts.append(f"holds offset {span.base_offset} of {place} after {before.next_offset - 1} (inv. 4)")
            first = before or Stretch(key, span.base_offset, span.base_offset)
            self.stretches[span.topic_partition] = Stretch(first.key, first.base_offset, span.next_offset)
        return texts
