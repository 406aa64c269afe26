"""Reads a run of neighbouring WAL entries, several at once: a log of thousands of tiny entries is read as fast as its
producers write it, while of large ones no more are held than there is memory for.

Nothing tells how large the next entries are, and a listing would: of a thousand entries at a time, where a local
directory looks through all that wait for their deletion as well. So a round is as wide as the entries of the round
before allow, and of each entry no more is asked for than its share; one that has outgrown it is asked for again, alone.
The first round of a run is as wide as what the run before brought allows (`width_after`).

A round is decoded in one go, in a thread: many small entries take as long as a large one, and the event loop has
requests to answer meanwhile (decoded where they arrived, they took the p99 of produce from 11 ms to 64 and more).

Every object is read and checked, also where a broker has the records in memory: what the archiver copies is what the
bucket holds, and damage is found while its producer may still be there.
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
from tidelog.storage.wal import Wal
from tidelog.storage.wal_entry import WalEntry

READS_AT_ONCE = 32
STORED_BYTES_AT_ONCE = 2 * 1024 * 1024
"""Of objects under way at once, unless a single one is larger."""


def width_after(entries: Sequence[WalEntry]) -> int:
    """How many may be read at once at first, to go on where a run ended that brought `entries`."""
    largest_bytes = max((entry.records.nbytes for entry in entries[-READS_AT_ONCE:]), default=STORED_BYTES_AT_ONCE)
    return _bounded(READS_AT_ONCE, largest_bytes)


async def read_run(
    wal: Wal, start: int, end: int | None, raw_bytes: int, executor: Executor | None = None, *, width: int = 1
) -> Sequence[WalEntry]:
    """The entries from `start` on and below `end` (None: all there are), until they hold `raw_bytes`; one at least.
    `width` of them are read at once at first.

    The run ends before an entry that is missing, which the floor may have passed: whoever asks reads the floor
    afterwards and lets go of what lies below it. It ends before a damaged entry too, and raises `Corrupt` if that is
    the first. `executor` does the decoding (None: the event loop's own). Raises `Unavailable`."""
    entries: list[WalEntry] = []
    held_bytes = 0
    while end is None or start < end:
        numbers = range(start, start + width if end is None else min(start + width, end))
        found = await _read_round(wal, numbers)
        decoded = await asyncio.get_running_loop().run_in_executor(executor, _decoded, wal, start, found.bodies)
        for entry in decoded.entries:
            if entries and held_bytes >= raw_bytes:
                return entries
            entries.append(entry)
            held_bytes += entry.records.nbytes
        if decoded.fault and not entries:
            raise decoded.fault
        if found.missing or decoded.fault:
            break
        start += len(found.bodies)
        width = _next_width(width, max(map(len, found.bodies))) if found.whole else 1
    return entries


class _Absent(Enum):
    """Why there is nothing: no such entry (any more), or larger than its share."""

    MISSING = "missing"
    OUTGROWN = "outgrown"


@dataclass(frozen=True)
class _Round:
    """Entries as they are stored: the `whole` round, or those before one that is absent, perhaps `missing`."""

    bodies: Sequence[bytes]
    whole: bool = False
    missing: bool = False


def _next_width(width: int, largest_bytes: int) -> int:
    """How many are read at once after a round of `width` whose largest had so many bytes."""
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
    """The entries of a round, or those before the one that has the `fault`."""

    entries: Sequence[WalEntry]
    fault: Corrupt | None = None


def _decoded(wal: Wal, start: int, bodies: Sequence[bytes]) -> _Decoded:
    entries: list[WalEntry] = []
    for place, body in enumerate(bodies):
        try:
            entries.append(wal.decode(start + place, body))
        except Corrupt as fault:
            return _Decoded(entries, fault)
    return _Decoded(entries)
