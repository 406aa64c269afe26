"""The writer of a write-ahead log: it claims an epoch, and commits entries one at a time.

    writer = WalWriter(wal, runtime, writer_id)
    await writer.claim()
    header = writer.next_header(spans=spans)
    await writer.commit(PreparedEntry(header, wal.codec.encode(header, records)))

While a commit is under way, the next entry may be encoded: ``writer.next_header(spans=..., after=header)``. The
protocol is that of `commit_fsm.CommitFsm`. `floor_trust_s` must be at most half the grace of every truncator of this
log.

Outcomes of `commit`
--------------------
- It returns: the entry is in the log (inv. 1).
- `Fenced`: the writer does not lead any more, and **the fate of the entry is unknown**. The next leader finds it in the
  log, or does not.
- `Unavailable` or `Denied` (after the timeout), any other error, or cancellation: the entry is **in doubt** and is
  remembered. Either the next `commit` gets the same entry and continues where this one stopped, or `claim` begins a new
  epoch, whose START decides the fate of that number.
"""

from __future__ import annotations

from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Denied, Fenced, Invalid, NotFound, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.commit_fsm import RESTING, CommitFsm, State
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import PreparedEntry


class WalWriter(CommitFsm):
    """One leader of one shard. Its calls must not overlap, since one PUT may be in flight; else they raise
    `Invalid`."""

    def __init__(
        self,
        wal: Wal,
        runtime: Runtime,
        writer_id: str,
        *,
        backoff: Backoff | None = None,
        floor_trust_s: float = FLOOR_TRUST_S,
    ) -> None:
        super().__init__(wal, runtime, writer_id, backoff=backoff, floor_trust_s=floor_trust_s)
        self._driving = False

    async def claim(self, *, epoch: int | None = None, known_end: int = 0, timeout_s: float | None = None) -> int:
        """Begin an epoch and return it. It is `epoch`, which a coordinator assigned and which can be claimed once, or
        by default one above the highest in the log. All entries below `known_end` are known to be committed, which
        saves a listing. The writer forgets an entry in doubt: read the log to learn its fate. Raises `Unavailable`
        after `timeout_s`, `Denied` at once, `Fenced` if the log has `epoch` or a later one, from another writer or from
        an earlier try of this one."""
        self._refuse_overlap()
        self.begin_claim(epoch, known_end)
        await self._drive(timeout_s)
        if self._state is State.FENCED:
            raise Fenced(f"epoch {epoch} cannot be claimed: the log of shard {self._wal.shard} has it or a later one")
        return self._epoch

    async def commit(self, entry: PreparedEntry, *, timeout_s: float | None = None) -> None:
        """Return once `entry` is in the log; at once if it is the entry committed last. Tries until `timeout_s` has
        passed, which is checked between requests. The module's docstring lists the outcomes."""
        self._refuse_overlap()
        self.begin_commit(entry)
        await self._drive(timeout_s)
        if self._state is not State.LEADING:
            lost = f"not leader of shard {self._wal.shard} any more: another writer took over"
            raise Fenced(f"{lost}. The outcome of entry {entry.header.seq} is unknown")

    async def is_overtaken(self) -> bool:
        """Whether a later epoch than this writer's has begun in the log. False means that at some moment of this call
        none had begun, so this writer knows all that was acknowledged before the call
        (docs/adr/0017-linearizable-reads.md).

        May run beside a commit. Takes two reads, and one more for each unanswered entry of this writer. Raises
        `Unavailable`, `Corrupt`."""
        seq = self._next_seq
        while True:
            try:
                header = await self._wal.header(seq)
            except NotFound:
                return await self._floor_is_beyond()
            if header.epoch > self._epoch:
                return True
            seq += 1

    async def _floor_is_beyond(self) -> bool:
        """Whether the log continues beyond this writer: others have archived and deleted entries after its last one."""
        return (await self._wal.floor()).number > self._next_seq

    def _refuse_overlap(self) -> None:
        if self._driving:
            raise Invalid("another call of this writer is under way: only one PUT may be in flight")

    async def _drive(self, timeout_s: float | None) -> None:
        deadline_s = None if timeout_s is None else self._runtime.clock.monotonic() + timeout_s
        self._driving = True
        try:
            while self._state not in RESTING:
                self._refuse_late(deadline_s)
                await self.step()
        finally:
            self._driving = False

    def _refuse_late(self, deadline_s: float | None) -> None:
        if self._state is State.BACKING_OFF and deadline_s is not None and self.retries.at_s >= deadline_s:
            error = self.retries.last_error
            kind = Denied if self.retries.denied else Unavailable
            raise kind(f"shard {self._wal.shard}: no answer for entry {self._next_seq} in time ({error})") from error
