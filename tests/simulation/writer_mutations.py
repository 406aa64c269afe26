"""Wrong versions of the commit protocol, each with one mistake. The simulation must catch every one of them.

Each overrides one method of one state. The product does not know them.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.storage.errors import Contended, Invalid, Unavailable
from tidelog.storage.wal.commit_fsm import State
from tidelog.storage.wal.wal_entry import EntryKind, PreparedEntry
from tidelog.storage.wal.wal_writer import WalWriter


class NoFloorCheck(WalWriter):
    """Takes every successful PUT as a commit."""

    async def _checking_trust(self) -> None:
        self._win(self._put_since_s)


class NoFloorCheckOfStart(WalWriter):
    """Takes every successful START as an epoch."""

    async def _checking_trust(self) -> None:
        if self._entry().header.kind is EntryKind.START:
            self._win(self._put_since_s)
        else:
            await super()._checking_trust()


class NoFloorCheckAfterConflict(WalWriter):
    """Finds its own entry at its number, and checks nothing further."""

    async def _resolving(self) -> None:
        await super()._resolving()
        if self._state is State.CHECKING_TRUST:
            self._win(self._put_since_s)


class TrustFromTheAnswer(WalWriter):
    """Counts the trust from the arrival of the answer, although it may have slept since the answer's information was
    true."""

    def _win(self, above_floor_s: float) -> None:
        super()._win(self._runtime.clock.monotonic())


class TrustBeforeThePut(WalWriter):
    """Checks the clock before the PUT is sent, not after the answer arrives."""

    _looked_s = 0.0

    async def _putting(self) -> None:
        self._looked_s = self._runtime.clock.monotonic()
        await super()._putting()

    async def _checking_trust(self) -> None:
        is_start = self._entry().header.kind is EntryKind.START
        if not is_start and self._looked_s - self._above_floor_s < self._floor_trust_s:
            self._win(self._put_since_s)
        else:
            self._state = State.CHECKING_FLOOR


class ContendedIsSuccess(WalWriter):
    """Takes a 409 as success."""

    async def _putting(self) -> None:
        try:
            await super()._putting()
        except Contended:
            self._state = State.CHECKING_TRUST


class ConflictIsSuccess(WalWriter):
    """Takes a 412 as its own lost PUT, without reading the entry."""

    async def _resolving(self) -> None:
        self._state = State.CHECKING_TRUST


class TimeoutIsFailure(WalWriter):
    """Takes a timeout as "not done": refuses the batch, and sends it again under another id."""

    async def _putting(self) -> None:
        try:
            await super()._putting()
        except Unavailable as error:
            if self._entry().header.kind is EntryKind.START:
                raise
            self._pending = None
            self._state = State.LEADING
            raise Invalid("not appended") from error


class TimeoutMovesOn(TimeoutIsFailure):
    """Like `TimeoutIsFailure`, and leaves the number to the batch that it gave up."""

    async def _putting(self) -> None:
        try:
            await super()._putting()
        except Invalid:
            self._next_seq += 1
            raise


class AcknowledgesBeforeCreate(WalWriter):
    """Answers first, and writes the entry when the next one comes."""

    _late: PreparedEntry | None = None

    async def _putting(self) -> None:
        entry = self._entry()
        if entry.header.kind is EntryKind.RECORDS:
            late, self._late = self._late, entry
            if late is not None:
                await self._wal.create(late)
            self._win(self._put_since_s)
        else:
            await super()._putting()


class ForgetsFloorEpoch(WalWriter):
    """Begins again at epoch 1 when the log is empty because everything is archived."""

    async def _searching(self) -> None:
        tail = await self._search.step()
        if tail is not None:
            is_empty = tail.next_seq == tail.floor.number
            self._epoch, self._next_seq = (1 if is_empty else tail.epoch + 1), tail.next_seq
            self._begin_put(self._start_entry())


class GoesOnBehind(WalWriter):
    """Finds another leader's entry at its number, and takes the next number instead of stepping down."""

    async def _resolving(self) -> None:
        entry = self._entry()
        header = entry.header
        await super()._resolving()
        if self._state is State.FENCED:
            self._next_seq = header.seq + 1
            moved = replace(header, seq=self._next_seq)
            records = self._wal.codec.decode(self._wal.key(header.seq), bytes(entry.body)).records
            self._begin_put(PreparedEntry(moved, self._wal.codec.encode(moved, records)))


class TellsEndsUnproved(WalWriter):
    """Answers reads at the end from memory, without a proof."""

    async def is_overtaken(self) -> bool:
        return False


class TellsEndsWithoutTheFloor(WalWriter):
    """Takes an entry that does not exist as one that was never made."""

    async def _floor_is_beyond(self) -> bool:
        return False
