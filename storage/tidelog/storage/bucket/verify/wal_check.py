"""Checks the write-ahead logs of a bucket.

`check_wals` checks all logs, `WalCheck` one of them: entries from the floor on have no gap, epochs never decrease (inv.
3), the offsets of each partition are dense (inv. 4), and the index agrees with the headers of the entries. Both tell
which offsets of each partition the logs hold, for the check of the manifests. If the manifest that has the floor cannot
be read, which its own check reports, the log is checked from its first entry on.

A broker may run at the same time. If an entry vanishes during the check, the floor is read again to see whether it has
passed the entry. Entries below the floor wait for their deletion (inv. 6).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tidelog.storage.bucket.finding import (
    UNREADABLE,
    Finding,
    Looked,
    Report,
    error,
    stranger,
    unreadable,
)
from tidelog.storage.bucket.listing import SHARDS_MAX, shard_of_folder
from tidelog.storage.bucket.shard_look import HeaderAnswer, read_header
from tidelog.storage.bucket.verify.index_check import IndexCheck
from tidelog.storage.errors import NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import WAL_PREFIX
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_log import EntryInfo
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor import BEGINNING, Floor
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import EntryKind, WalHeader

DEEP_AT_ONCE_MAX = 4
"""Whole entries in memory at a time."""


@dataclass
class Stretch:
    """Offsets ``[base_offset, next_offset)`` of a partition in the WAL of `shard`. Entry `key` holds the first one.
    `met`: they were compared with a manifest, or its manifest or list is damaged."""

    key: str
    base_offset: int
    next_offset: int
    shard: int = 0
    met: bool = False


@dataclass
class TopicWal:
    """The offsets of each partition of a topic in the logs: `stretches` from the floor on, `below` in entries that wait
    for their deletion."""

    stretches: dict[int, Stretch] = field(default_factory=dict)
    below: dict[int, Stretch] = field(default_factory=dict)

    @property
    def ends(self) -> dict[int, int]:
        """By partition, the offset after the last one."""
        return {number: stretch.next_offset for number, stretch in self.stretches.items()}

    def meet(self, shard: int) -> None:
        """Note that its stretches in `shard` are `met`."""
        for stretch in self.stretches.values():
            stretch.met |= stretch.shard == shard


WalContent = dict[str, TopicWal]
"""The content of the logs by topic id."""


async def check_wals(
    store: ObjectStore, runtime: Runtime, report: Report, *, deep: bool = False, at_once: int = 16
) -> WalContent:
    """Check all write-ahead logs. Raises `Unavailable`."""
    shards: set[int] = set()
    async for info in list_all(store, WAL_PREFIX):
        shard = shard_of(info.key)
        if shard is None or (shard not in shards and len(shards) == SHARDS_MAX):
            await report(stranger(info.key, info.size))
        else:
            shards.add(shard)
    content: WalContent = {}
    for shard in sorted(shards):
        wal = Wal(store, shard, ParquetWalCodec(), ShardLog(store, shard, runtime, lists_bytes=0))
        await WalCheck(wal, IndexCheck(store, shard, report), content, report, deep=deep, at_once=at_once).run()
    return content


def shard_of(key: str) -> int | None:
    """The shard of which `key` names an entry or an index block; None for any other key."""
    found = re.fullmatch(r"wal/(\d{4,}/)(_index/)?\d{20}\.parquet", key)
    return shard_of_folder(found[1]) if found else None


class WalCheck:
    """One run over `wal`, whose content is added to `content`."""

    def __init__(
        self, wal: Wal, index: IndexCheck, content: WalContent, report: Report, *, deep: bool, at_once: int
    ) -> None:
        self._wal = wal
        self._index = index
        self._report = report
        self._deep = deep
        self._at_once = min(at_once, DEEP_AT_ONCE_MAX) if deep else at_once
        self._floor = BEGINNING
        self._epoch = 0
        self._content = content

    async def run(self) -> None:
        """Raises `Unavailable`."""
        expected = await self._begin()
        async for entry, answer in in_order(self._wal.entries(), self._read, at_once=self._at_once):
            if entry.number < self._floor.number:
                self._note_below(answer)
                await self._report(Looked(entry.size_bytes, waiting=True))
                continue
            if expected is None:
                self._floor = Floor(entry.number)
            elif entry.number != expected and not await self._was_truncated(expected):
                await self._report(self._gap(expected, entry.number))
            expected = entry.number + 1
            await self._check_entry(entry, answer)
            await self._report(Looked(entry.size_bytes))
        await self._index.check_rest(self._floor.number, expected or 0, self._is_missing)

    async def _begin(self) -> int | None:
        """The number of the first entry that must exist; None if the floor cannot be read."""
        try:
            self._floor = await self._wal.floor()
        except (*UNREADABLE, NotFound):
            return None
        self._epoch = self._floor.epoch
        return self._floor.number

    async def _read(self, entry: EntryInfo) -> HeaderAnswer:
        return await read_header(self._wal, entry.number, whole=self._deep and entry.number >= self._floor.number)

    async def _was_truncated(self, number: int) -> bool:
        try:
            return (await self._wal.floor()).number > number
        except (*UNREADABLE, NotFound):
            return False

    async def _is_missing(self, number: int) -> bool:
        """Whether an entry that the index names is lost."""
        answer = await read_header(self._wal, number, whole=False)
        return isinstance(answer, NotFound) and not await self._was_truncated(number)

    def _gap(self, first: int, end: int) -> Finding:
        text = f"is missing, with all up to entry {end - 1} (inv. 6)"
        if first == 0:
            text += ": without a manifest, a log begins with entry 0"
        return error(self._wal.key(first), text)

    async def _check_entry(self, entry: EntryInfo, answer: HeaderAnswer) -> None:
        key = self._wal.key(entry.number)
        if isinstance(answer, UNREADABLE):
            await self._report(unreadable(answer, entry.size_bytes))
        elif isinstance(answer, WalHeader):
            for text in (*self._epoch_faults(answer), *self._span_faults(key, answer)):
                await self._report(error(key, text, entry.size_bytes))
            await self._index.compare(answer, entry.size_bytes)
        elif not await self._was_truncated(entry.number):
            await self._report(error(key, "was listed and is now missing, though the floor is not beyond it"))

    def _epoch_faults(self, header: WalHeader) -> list[str]:
        before, self._epoch = self._epoch, max(self._epoch, header.epoch)
        if header.epoch < before:
            return [f"is of epoch {header.epoch}, after one of {before} (inv. 3)"]
        begins = header.kind is EntryKind.START
        if header.epoch > before and not begins and header.seq > self._floor.number:
            return [f"is of epoch {header.epoch}, which no START entry begins"]
        return []

    def _span_faults(self, key: str, header: WalHeader) -> list[str]:
        texts, shard = [], self._wal.shard
        for span in header.spans:
            topic_id, number = span.topic_partition.topic_id, span.topic_partition.partition
            stretches = self._content.setdefault(topic_id, TopicWal()).stretches
            before = stretches.get(number)
            if before and before.shard != shard:
                texts.append(f"holds {topic_id}/{number}, which lives in another shard")
                before = None
            if before and before.next_offset != span.base_offset:
                text = f"holds offset {span.base_offset} of {topic_id}/{number} after {before.next_offset - 1} (inv. 4)"
                texts.append(text)
            first = before or Stretch(key, span.base_offset, span.base_offset, shard)
            stretches[number] = Stretch(first.key, first.base_offset, span.next_offset, shard)
        return texts

    def _note_below(self, answer: HeaderAnswer) -> None:
        if not isinstance(answer, WalHeader):
            return  # it is garbage; whether it is damaged or deleted by now does not matter
        for span in answer.spans:
            topic_id, number = span.topic_partition.topic_id, span.topic_partition.partition
            below = self._content.setdefault(topic_id, TopicWal()).below
            before = below.get(number)
            if before is None or span.next_offset > before.next_offset:
                below[number] = Stretch(self._wal.key(answer.seq), span.base_offset, span.next_offset, self._wal.shard)
