"""The commit protocol of a write-ahead log as an explicit state machine.

        claim()                        commit(entry)
           |                               |
           v     tail found, START made    v
       SEARCHING ------------------> PUTTING <---------------------.
           ^                          |   |                        |
           | START: lost the number   |   | Conflict               | (the same PUT again)
           |                          |   v                        |
           |------------------- RESOLVING |                        |
           |            own id: won |     | won             BACKING_OFF <- Unavailable, Contended, Denied, in any state;
           |                        v     v                        `-----> returns to the state it came from
           |                      CHECKING_TRUST -- the trust in the floor holds --> LEADING
           |                            | it does not, or START
           |                            v
           `--- START: below it -- CHECKING_FLOOR -- not below the floor --> LEADING
                                        |
      RESOLVING: another's, or gone;    v            (entries with records only)
      CHECKING_FLOOR: below it ----> FENCED <-- SEARCHING: the log has the epoch to be claimed, or a later one

There is one method per state, and at most one store request per step (two for a header of unusual length, or for the
floor in a manifest that is not known yet). `step` advances once, so that tests and the simulation can stop between any
two requests. `wal_writer.WalWriter` drives it.

Why each step is needed
-----------------------
- A successful create is not yet a commit. A writer may stall while another one takes over, archives its number and
  deletes the entry. The stalled writer then creates that number again, below the floor, where no reader looks. So after
  a PUT the writer must prove that its number was never used before (inv. 1, 2), in one of two ways:
  - By time. At t0 the floor had not passed the number, and no entry is deleted sooner than a grace after the floor
    passed it (inv. 6), so the number was not free *again* before t0 + grace. If the answer arrives before t0 +
    `FLOOR_TRUST_S`, which is at most half the grace, the create was the first. t0 is when the floor was last requested,
    or when the entry before was first sent; never when an answer came, because the process may have slept since.
    `floor_trust` has the proof.
  - By the floor. It is read after the create took effect, and it rises before anything is deleted. A floor that has not
    passed the entry proves the same.
- Both apply as well if the writer learned by reading the entry back that its PUT succeeded: that number, too, may have
  been created again.
- A START is always checked against the floor, because its number comes from a search that may have seen an old floor.
- `Unavailable` says nothing about the outcome: the PUT may have happened or may still happen. So only the same entry
  (same bytes, same id) may follow under its number; an entry with another id would conflict with it and be fenced.
  `Contended` did nothing and is handled the same way.
- `Denied` did nothing either, but an earlier try may have, so a commit handles it the same way. A claim raises it.
- `Conflict` and then `NotFound` on the read: the number was taken and its entry is deleted, so the floor has passed it.
  If the deleted entry was the writer's own, its records are in the archive; if not, the writer is fenced. The writer
  cannot tell which, so it is fenced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum

from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Conflict, Denied, Fenced, Invalid, NotFound, Unavailable
from tidelog.storage.records import WAL_SCHEMA
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.commit_retries import CommitRetries
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import EntryKind, PreparedEntry, ProducerMark, Span, WalHeader
from tidelog.storage.wal.wal_tail import TailSearch

_NO_RECORDS = WAL_SCHEMA.empty_table()


class State(Enum):
    """The states drawn in the module's docstring."""

    IDLE = "idle"
    SEARCHING = "searching"
    PUTTING = "putting"
    BACKING_OFF = "backing off"
    RESOLVING = "resolving"
    CHECKING_TRUST = "checking trust"
    CHECKING_FLOOR = "checking floor"
    LEADING = "leading"
    FENCED = "fenced"


RESTING = frozenset({State.IDLE, State.LEADING, State.FENCED})


class CommitFsm:
    """The machine of one leader of one shard. `retries` has the store's failures and refusals. The simulation's
    mutations override single state methods, to show that each is needed."""

    def __init__(
        self,
        wal: Wal,
        runtime: Runtime,
        writer_id: str,
        *,
        backoff: Backoff | None = None,
        floor_trust_s: float = FLOOR_TRUST_S,
    ) -> None:
        self._wal = wal
        self._runtime = runtime
        self._writer_id = writer_id
        self.retries = CommitRetries(f"shard {wal.shard}", runtime, backoff or Backoff())
        self._floor_trust_s = floor_trust_s
        self._above_floor_s = 0.0
        self._put_since_s = 0.0
        self._state = State.IDLE
        self._epoch = 0
        self._wanted_epoch: int | None = None
        self._known_end = 0
        self._next_seq = 0
        self._pending: PreparedEntry | None = None
        self._committed_id = ""
        self._search = TailSearch(wal)
        self._interrupted = State.IDLE

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    @property
    def epoch(self) -> int:
        """The epoch that this writer began last; 0 before the first."""
        return self._epoch

    @property
    def next_seq(self) -> int:
        """The number of the entry in doubt or in flight; if there is none, of the next entry."""
        return self._next_seq

    @property
    def in_doubt(self) -> WalHeader | None:
        """The entry whose outcome is not known yet. The next `commit` must be given this one."""
        return self._pending.header if self._pending else None

    def next_header(
        self,
        *,
        spans: tuple[Span, ...] = (),
        producers: tuple[ProducerMark, ...] = (),
        after: WalHeader | None = None,
    ) -> WalHeader:
        """The header of a RECORDS entry for the next number. With `after`, an entry in flight, it is for the number
        after that one, so that the next entry can be encoded meanwhile; it is void if `after` is fenced."""
        return WalHeader(
            kind=EntryKind.RECORDS,
            shard=self._wal.shard,
            seq=self._next_seq if after is None else after.seq + 1,
            epoch=self._epoch,
            writer_id=self._writer_id,
            entry_id=self._runtime.entropy.new_id(),
            written_at_ms=self._runtime.clock.now_ms(),
            spans=spans,
            producers=producers,
        )

    async def step(self) -> State:
        """Advance by one state method, with at most one request. At rest, do nothing. An error that is not retried
        leaves the state unchanged."""
        interrupted = self._state
        if interrupted in RESTING:
            return interrupted
        try:
            await self._methods()[interrupted]()
        except Denied as error:
            if self._pending is None or self._pending.header.kind is EntryKind.START:
                raise
            self._back_off(interrupted, error)
        except Unavailable as error:
            self._back_off(interrupted, error)
        else:
            if interrupted is not State.BACKING_OFF:
                self.retries.answered()
        return self._state

    def begin_claim(self, epoch: int | None = None, known_end: int = 0) -> None:
        """Enter SEARCHING for a new epoch, from any state; `step` continues. With `epoch`, claim that one: the result
        is FENCED if the log has it or a later one. All entries below `known_end` are known to be committed."""
        self._pending = None
        self._wanted_epoch = epoch
        self._known_end = known_end
        self._seek()

    def begin_commit(self, entry: PreparedEntry) -> None:
        """Enter PUTTING with `entry`, or stay in the state where its last commit stopped; `step` continues."""
        header = entry.header
        if self._pending is not None and self._pending.header.kind is EntryKind.RECORDS:
            if self._pending.header.entry_id != header.entry_id:
                raise Invalid(f"entry {self._next_seq} is in doubt: commit it again, or claim a new epoch")
            return
        if self._state is State.LEADING and header.entry_id == self._committed_id:
            return
        if self._state is not State.LEADING:
            raise Fenced(f"this writer does not lead shard {self._wal.shard} ({self._state.value}): claim it first")
        wanted = (EntryKind.RECORDS, self._wal.shard, self._next_seq, self._epoch)
        if (header.kind, header.shard, header.seq, header.epoch) != wanted:
            raise Invalid(f"the entry is {header.seq} of epoch {header.epoch}, the next is {wanted[2]} of {wanted[3]}")
        self._begin_put(entry)

    def _methods(self) -> dict[State, Callable[[], Awaitable[None]]]:
        return {
            State.SEARCHING: self._searching,
            State.PUTTING: self._putting,
            State.BACKING_OFF: self._backing_off,
            State.RESOLVING: self._resolving,
            State.CHECKING_TRUST: self._checking_trust,
            State.CHECKING_FLOOR: self._checking_floor,
        }

    async def _searching(self) -> None:
        tail = await self._search.step()
        if tail is None:
            return
        if self._wanted_epoch is not None and self._wanted_epoch <= tail.epoch:
            self._state = State.FENCED
            return
        self._epoch = tail.epoch + 1 if self._wanted_epoch is None else self._wanted_epoch
        self._next_seq = tail.next_seq
        self._begin_put(self._start_entry())

    async def _putting(self) -> None:
        try:
            await self._wal.create(self._entry())
        except Conflict:
            self._state = State.RESOLVING
        else:
            self._state = State.CHECKING_TRUST

    async def _resolving(self) -> None:
        mine = self._entry().header
        try:
            there = await self._wal.header(mine.seq)
        except NotFound:
            self._lose()
        else:
            if there.entry_id == mine.entry_id:
                self._state = State.CHECKING_TRUST
            else:
                self._lose()

    async def _checking_trust(self) -> None:
        is_start = self._entry().header.kind is EntryKind.START
        trusted = self._runtime.clock.monotonic() - self._above_floor_s < self._floor_trust_s
        if trusted and not is_start:
            self._win(self._put_since_s)
        else:
            self._state = State.CHECKING_FLOOR

    async def _checking_floor(self) -> None:
        asked_s = self._runtime.clock.monotonic()
        floor = await self._wal.floor()
        if self._entry().header.seq < floor.number:
            self._lose()
        else:
            self._win(asked_s)

    async def _backing_off(self) -> None:
        await self.retries.wait()
        self._state = self._interrupted

    def _begin_put(self, entry: PreparedEntry) -> None:
        self._pending = entry
        self._put_since_s = self._runtime.clock.monotonic()
        self._state = State.PUTTING

    def _win(self, above_floor_s: float) -> None:
        """The entry is in the log. At `above_floor_s` the floor had passed neither it nor the number after it."""
        self._above_floor_s = above_floor_s
        self._committed_id = self._entry().header.entry_id
        self._pending = None
        self._next_seq += 1
        self._state = State.LEADING

    def _lose(self) -> None:
        """Another writer has the number: a claim searches the tail again, a leader is fenced."""
        kind = self._entry().header.kind
        self._pending = None
        if kind is EntryKind.START:
            self._seek()
        else:
            self._state = State.FENCED

    def _seek(self) -> None:
        self._search = TailSearch(self._wal, self._known_end)
        self._state = State.SEARCHING

    def _back_off(self, interrupted: State, error: Denied | Unavailable) -> None:
        self._interrupted = interrupted
        self.retries.failed(error)
        self._state = State.BACKING_OFF

    def _entry(self) -> PreparedEntry:
        assert self._pending is not None, self._state
        return self._pending

    def _start_entry(self) -> PreparedEntry:
        start = replace(self.next_header(), kind=EntryKind.START)
        return PreparedEntry(start, self._wal.codec.encode(start, _NO_RECORDS))
