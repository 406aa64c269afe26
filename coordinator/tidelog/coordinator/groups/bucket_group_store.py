"""Stores all groups of a broker without etcd: in memory, and in a compacted journal in the bucket.

- The first `load`, `write` or `heads` reads the journal and claims it with an entry, so a broker whose clients use no
  groups sends no request. The claim fences another broker that coordinates groups on the same bucket.
- One PUT is in flight. Writes that arrive meanwhile go together into the next entry; on S3 PUTs start at least
  `interval_s` apart, which bounds their cost. An idle store writes at once, and costs nothing while it is idle.
- After `Unavailable` the outcome of an entry is unknown. The next call writes the same entry again before anything
  else, so `load` never returns a state that a late entry could change.
- `Fenced` is final: this store refuses all later calls. The broker must restart.

Compaction runs beside the writes (`journal_compaction`). If it fails, it is tried again after the next entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore, HeadPage
from tidelog.coordinator.groups.journal.group_journal import GroupJournal
from tidelog.coordinator.groups.journal.journal_compaction import JournalCompaction
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Overloaded, TidelogError, Unavailable
from tidelog.storage.layout import EMBEDDED_GROUPS
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor_trust import floor_trust_s

ENTRY_BYTES_MAX = 4_000_000
"""Writes are put together into one entry up to this size. A single larger write is an entry of its own."""
WAITING_BYTES_MAX = 32_000_000
"""Keys and values that wait for an entry. Beyond it, `write` raises `Overloaded`."""
_COMPACTION_RETRY = Backoff(first_s=1.0, max_s=60.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Waiting:
    changes: Sequence[Change]
    size_bytes: int
    stored: asyncio.Future[None]

    def answer(self, error: BaseException | None) -> None:
        if self.stored.done():
            return  # its caller is gone
        if error is None:
            self.stored.set_result(None)
        else:
            self.stored.set_exception(error)


class BucketGroupStore(GroupStore):
    """One per bucket and process, for all shards. `grace_s`: `delete.grace.ms`. `interval_s`: the time between the
    starts of two PUTs while there is more to write."""

    def __init__(self, store: ObjectStore, runtime: Runtime, *, grace_s: float, interval_s: float = 0.0) -> None:
        self._journal = GroupJournal(store, EMBEDDED_GROUPS, runtime, trust_s=floor_trust_s(grace_s))
        self._compaction = JournalCompaction(self._journal, runtime, grace_s=grace_s)
        self._runtime = runtime
        self._interval_s = interval_s
        self._claimed = False
        self._in_use = asyncio.Lock()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._put_at_s = float("-inf")
        self._committing: asyncio.Task[None] | None = None
        self._compacting: asyncio.Task[None] | None = None
        self._closed = False

    async def load(self, group: str) -> Mapping[str, bytes]:
        await self._settle()
        return self._journal.keys.of(group)

    async def heads(self, after: str, limit: int) -> HeadPage:
        await self._settle()
        return self._journal.keys.heads(after, limit)

    async def write(self, changes: Sequence[Change]) -> None:
        if self._closed:
            raise Unavailable("the store of groups is closed; nothing was applied")
        if self._waiting_bytes > WAITING_BYTES_MAX:
            raise Overloaded("too many changes of groups wait for the bucket; nothing was applied", retry_after_s=1.0)
        waiting = _Waiting(changes, sum(map(_bytes_of, changes)), asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._waiting_bytes += waiting.size_bytes
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        await waiting.stored

    async def aclose(self) -> None:
        """Stop at once. Writes that wait fail with `Unavailable`; what they did is unknown."""
        self._closed = True
        tasks = [task for task in (self._committing, self._compacting) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._answer(self._waiting, Unavailable("the store of groups was closed; the outcome is unknown"))
        self._waiting = []

    async def _settle(self) -> None:
        """Make the state in memory that of the journal."""
        async with self._in_use:
            await self._claim_once()
            await self._journal.settle()

    async def _claim_once(self) -> None:
        if not self._claimed:
            await self._journal.claim()
            self._claimed = True

    async def _commit_waiting(self) -> None:
        while self._waiting:
            await self._pace()
            async with self._in_use:
                await self._commit(self._next_batch())
            if self._compaction.due and (self._compacting is None or self._compacting.done()):
                self._compacting = asyncio.create_task(self._compact())

    async def _pace(self) -> None:
        left_s = self._put_at_s + self._interval_s - self._runtime.clock.monotonic()
        if left_s > 0:
            await self._runtime.clock.sleep(left_s)

    def _next_batch(self) -> Sequence[_Waiting]:
        """The writes for the next entry, in their order."""
        size_bytes, count = 0, 0
        for waiting in self._waiting:
            size_bytes += waiting.size_bytes
            if count and size_bytes > ENTRY_BYTES_MAX:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        error: BaseException | None = Unavailable("the store of groups was closed; the outcome is unknown")
        try:
            await self._claim_once()
            self._put_at_s = self._runtime.clock.monotonic()
            last = {change.key: change for waiting in batch for change in waiting.changes}
            await self._journal.append(tuple(last.values()))
            error = None
        except Exception as raised:
            error = raised
        finally:
            self._waiting_bytes -= sum(waiting.size_bytes for waiting in batch)
            self._answer(batch, error)

    def _answer(self, batch: Sequence[_Waiting], error: BaseException | None) -> None:
        for waiting in batch:
            waiting.answer(error)

    async def _compact(self) -> None:
        failures = 0
        while self._compaction.due:
            try:
                await self._compaction.run()
            except TidelogError as error:
                failures += 1
                pause_s = _COMPACTION_RETRY.delay_s(failures, self._runtime.entropy)
                _log.warning("compaction of the groups' journal failed and is tried in %.0f s: %s", pause_s, error)
                await self._runtime.clock.sleep(pause_s)


def _bytes_of(change: Change) -> int:
    return len(change.key) + (len(change.value) if isinstance(change, PutKey) else 0)
