"""The writer of a write-ahead log: claims an epoch, commits entries one at a time.

    writer = WalWriter(wal, runtime, writer_id)
    await writer.claim()
    header = writer.next_header(spans=spans)
    await writer.commit(PreparedEntry(header, wal.codec.encode(header, records)))

While that commit is under way the next entry may be encoded: ``writer.next_header(spans=..., after=header)``. The
protocol itself is `commit_fsm.CommitFsm`; `floor_trust_s` is at most half the grace of whoever truncates this log.

What an answer means
--------------------
`commit` returned: the entry is in the log (inv. 1). `Fenced`: the writer leads no longer, and **the fate of this entry
is unknown**; whoever leads next finds it in the log, or not. `Unavailable` or `Denied` (the timeout passed), any other
error, or a cancelled task: the entry is **in doubt** and remembered. The next `commit` must be given the same entry and
goes on where the last one stood, or `claim` begins a new epoch, whose START settles the number one way or the other.
"""

from __future__ import annotations

from tidelog.storage.backoff import Backoff
from tidelog.storage.commit_fsm import RESTING, CommitFsm, State
from tidelog.storage.errors import Denied, Fenced, Invalid, NotFound, Unavailable
from tidelog.storage.floor_trust import FLOOR_TRUST_S
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal import Wal
from tidelog.storage.wal_entry import PreparedEntry


class WalWriter(CommitFsm):
    """One leader of one shard. Its calls must not overlap: one PUT is in flight (`Invalid` otherwise)."""

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
        """Begin an epoch and return it: `epoch`, which a coordinator gave out and which can be claimed once, or one
        above the highest in the log. All entries below `known_end` are known to be committed, which spares a listing.
        An entry in doubt is let go: read the log to learn what became of it. Raises `Unavailable` after `timeout_s`,
        `Denied` at once, `Fenced` if the log has `epoch` or a later one, by another or by one's own earlier try."""
        self._refuse_overlap()
        self.begin_claim(epoch, known_end)
        await self._drive(timeout_s)
        if self._state is State.FENCED:
            raise Fenced(f"shard {self._wal.shard} has seen epoch {epoch} or a later one: it cannot be claimed")
        return self._epoch

    async def commit(self, entry: PreparedEntry, *, timeout_s: float | None = None) -> None:
        """Return once `entry` is in the log; with the entry committed last, at once. Tries until it is settled or
        `timeout_s` has passed (looked at between requests). The errors are told in the module's head."""
        self._refuse_overlap()
        self.begin_commit(entry)
        await self._drive(timeout_s)
        if self._state is not State.LEADING:
            raise Fenced(f"entry {entry.header.seq} of shard {self._wal.shard}: another leader holds the log now")

    async def is_overtaken(self) -> bool:
        """Whether a later epoch than this writer's has begun in the log. False: none had at a moment of this call, so
        that all that was acknowledged before the call is known to this writer (docs/adr/0017-linearizable-reads.md).

        May run beside a commit. Two reads, and one more for each entry of this writer's own that is not answered yet.
        Raises `Unavailable`, `Corrupt`."""
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
        """Whether the log goes on where this writer has not been: others have archived and deleted what was there."""
        return (await self._wal.floor()).number > self._next_seq

    def _refuse_overlap(self) -> None:
        if self._driving:
            raise Invalid("this writer is at work on another call: one PUT may be in flight")

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
