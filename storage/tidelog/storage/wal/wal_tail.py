"""Finds the end of a write-ahead log: the next number, and the highest epoch so far.

A search makes one request per step: the floor, a listing from there (one page per step), the header of the last entry.
If the log is truncated meanwhile, these may not fit together: a listed entry is gone, or the listing has a gap where a
deletion is under way. Then the search begins again.

A gap that is still there under the same floor is not a truncation: entries are lost. The log then still ends after its
greatest number, so that a lost number is never created again (inv. 2). If the last entries cannot be read, the epoch is
taken from an entry before them, plus one for each of them, since each may have begun an epoch. If the first entry is
missing while the floor is 0, the shard has lost its manifest, and the search ends in `Corrupt`.

The result is a hint: it was true at some moment, or never (the log may have been emptied and deleted between the read
of the floor and the listing). Only a create at that number, and a check of the floor after it, prove it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import manifests_prefix
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal import Wal

UNREADABLE_MAX = 16
"""The number of damaged entries at the end of a log that a search can pass."""


@dataclass(frozen=True)
class Tail:
    """The log is ``[floor.number, next_seq)``. `epoch` is the highest one in the log or below it."""

    floor: Floor
    next_seq: int
    epoch: int


async def find_tail(wal: Wal) -> Tail:
    """The end of `wal`. Takes three requests if the listing is one page, and one more if the manifest is not known."""
    search = TailSearch(wal)
    while (tail := await search.step()) is None:
        pass
    return tail


class TailSearch:
    """One search. After an error, `step` continues where it stopped.

    All entries below `known_end` are known to be committed (`wal_index`), so the listing begins with the last of them.
    If that entry is gone, the log was truncated beyond it, and the search begins again without `known_end`."""

    def __init__(self, wal: Wal, known_end: int = 0) -> None:
        self._wal = wal
        self._gap_floor: int | None = None
        self._restart()
        self._known_end = known_end

    async def step(self) -> Tail | None:
        """Make one request (two for a header of unusual length, or a manifest that is not known yet). Returns the tail
        once it is found."""
        if self._floor is None:
            await self._read_floor()
            return None
        if self._resume is not None:
            await self._list_page(self._floor, self._resume)
            return self._if_empty(self._floor)
        return await self._read_last(self._floor)

    def _restart(self) -> None:
        self._floor: Floor | None = None
        self._resume: str | None = None
        self._next_seq = 0
        self._known_end = 0
        self._listed: deque[int] = deque(maxlen=UNREADABLE_MAX + 1)
        self._unreadable = 0

    async def _read_floor(self) -> None:
        floor = await self._wal.floor()
        self._floor = floor
        self._next_seq = max(floor.number, self._known_end - 1)
        self._resume = self._wal.log.before(self._next_seq)

    async def _list_page(self, floor: Floor, resume: str) -> None:
        page = await self._wal.log.page(resume)
        for entry in page.entries:
            if entry.number != self._next_seq and not self._is_lost(floor):
                self._gap_floor = floor.number
                self._restart()
                return
            self._next_seq = entry.number + 1
            self._listed.append(entry.number)
        self._resume = page.resume

    def _is_lost(self, floor: Floor) -> bool:
        """Whether entry `_next_seq`, which is not listed, is lost: the gap was there before, under the same floor."""
        if self._gap_floor != floor.number:
            return False
        if floor.number == 0 and self._next_seq == 0:
            reason = "has no manifest with a floor, although the log begins after entry 0: its manifest was deleted"
            raise Corrupt(manifests_prefix(self._wal.shard), reason)
        return True

    def _if_empty(self, floor: Floor) -> Tail | None:
        if self._floor is None or self._resume is not None or self._next_seq > floor.number:
            return None
        if self._next_seq < self._known_end:
            return None
        return Tail(floor, floor.number, floor.epoch)

    async def _read_last(self, floor: Floor) -> Tail | None:
        if self._next_seq < self._known_end:
            self._restart()  # the last known entry was not listed
            return None
        try:
            last = await self._wal.header(self._listed[-1])
        except NotFound:
            self._restart()
            return None
        except Corrupt as fault:
            self._pass_over_last(fault)
            return None
        return Tail(floor, self._next_seq, max(last.epoch, floor.epoch) + self._unreadable)

    def _pass_over_last(self, fault: Corrupt) -> None:
        """The last entry cannot be read: use the epoch of the entry before it."""
        if len(self._listed) > 1:
            self._listed.pop()
            self._unreadable += 1
        elif self._known_end:
            self._restart()  # and list from the floor on
        else:
            raise fault
