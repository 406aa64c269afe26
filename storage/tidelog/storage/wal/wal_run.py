"""Reads a run of consecutive WAL entries, several at once. Thousands of tiny entries are read as fast as producers
write them; of large ones no more are held than memory allows.

The sizes of the next entries are not known. A listing has them, but of a thousand entries at a time, and a local
directory would also go through all entries that wait for deletion. So entries are read in rounds:

- The width of a round follows from the sizes in the round before; that of a run's first round, from the run before
  (`width_after`).
- Of each entry at most its share of `STORED_BYTES_AT_ONCE` is requested. A larger entry is requested again, alone.
- A round is checked in one thread call, since many small entries take as long as a large one. On the event loop, that
  raised the p99 of produce from 11 ms to more than 64 ms.

Every object is read and checked, even if a broker has the records in memory: the archiver must copy what the bucket
holds, and must find damage while the producer may still exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from functools import partial

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.object_store import ByteRange
from tidelog.storage.wal.stored_entry import StoredEntry
from tidelog.storage.wal.wal import Wal

READS_AT_ONCE = 32
STORED_BYTES_AT_ONCE = 2 * 1024 * 1024
"""The size of all objects under way at once, unless a single one is larger."""


def width_after(entries: Sequence[StoredEntry]) -> int:
    """The first width of the run that continues after a run of `entries`."""
    largest_bytes = max((entry.stored_bytes for entry in entries[-READS_AT_ONCE:]), default=STORED_BYTES_AT_ONCE)
    return _bounded(READS_AT_ONCE, largest_bytes)


async def read_run(
    wal: Wal, start: int, end: int | None, stored_bytes: int, executor: Executor | None = None, *, width: int = 1
) -> Sequence[StoredEntry]:
    """The entries from `start` on and below `end` (None: all entries), until they have `stored_bytes`; at least one.
    The first round reads `width` of them at once. `executor` checks them (None: the event loop's own).

    The run ends before a missing entry. The floor may have passed it, so the caller must read the floor afterwards and
    discard the entries below it. The run also ends before a damaged entry; if that is the first one, it raises
    `Corrupt`. Raises `Unavailable`."""
    entries: list[StoredEntry] = []
    held_bytes = 0
    while end is None or start < end:
        numbers = range(start, start + width if end is None else min(start + width, end))
        found = await _read_round(wal, numbers)
        decoded = await asyncio.get_running_loop().run_in_executor(executor, _decoded, wal, start, found.bodies)
        for entry in decoded.entries:
            if entries and held_bytes >= stored_bytes:
                return entries
            entries.append(entry)
            held_bytes += entry.stored_bytes
        if decoded.fault and not entries:
            raise decoded.fault
        if found.missing or decoded.fault:
            break
        start += len(found.bodies)
        width = _next_width(width, max(map(len, found.bodies))) if found.whole else 1
    return entries


class _Absent(Enum):
    """An entry that a round lacks does not exist (any more), or is larger than its share."""

    MISSING = "missing"
    OUTGROWN = "outgrown"


@dataclass(frozen=True)
class _Round:
    """Stored entries: the `whole` round, or those before the first absent one. `missing`: that one does not exist."""

    bodies: Sequence[bytes]
    whole: bool = False
    missing: bool = False


def _next_width(width: int, largest_bytes: int) -> int:
    """The width of the round after one of `width` whose largest entry had `largest_bytes`."""
    return _bounded(2 * width, largest_bytes)


def _bounded(width: int, largest_bytes: int) -> int:
    return max(1, min(READS_AT_ONCE, width, STORED_BYTES_AT_ONCE // max(1, largest_bytes)))


async def _read_round(wal: Wal, numbers: range) -> _Round:
    share = ByteRange(0, STORED_BYTES_AT_ONCE // len(numbers)) if len(numbers) > 1 else None
    bodies: list[bytes] = []
    async with aclosing(in_order(numbers, partial(_read, wal, share), at_once=len(numbers))) as reads:
        async for _, read in reads:
            if isinstance(read, _Absent):
                return _Round(bodies, missing=read is _Absent.MISSING)
            bodies.append(read)
    return _Round(bodies, whole=True)


async def _read(wal: Wal, share: ByteRange | None, number: int) -> bytes | _Absent:
    try:
        stored = await wal.log.read(number, share)
    except NotFound:
        return _Absent.MISSING
    return stored.data if len(stored.data) == stored.info.size else _Absent.OUTGROWN


@dataclass(frozen=True)
class _Decoded:
    """The entries of a round, or those before the one with the `fault`."""

    entries: Sequence[StoredEntry]
    fault: Corrupt | None = None


def _decoded(wal: Wal, start: int, bodies: Sequence[bytes]) -> _Decoded:
    entries: list[StoredEntry] = []
    for place, body in enumerate(bodies):
        try:
            entries.append(wal.stored(start + place, body))
        except Corrupt as fault:
            return _Decoded(entries, fault)
    return _Decoded(entries)
