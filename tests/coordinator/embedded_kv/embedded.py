"""The key-value store of one broker without etcd, and of tests: in memory; the journal keeps the keys without a lease.

All changes go through one queue. The store computes the queued requests as one `KeyDraft`, writes it as one journal
entry (group commit), and then applies it. A group that changes only leased keys needs no entry. Without a journal the
store is in memory only.

If the bucket does not answer, the callers of the group get `Unavailable`, and the group is in doubt: its entry may be
there, or may still arrive. The store writes the same group again before any other, so it is applied later as a whole,
with its leased keys, and a transaction is never half applied. If another process has written instead, the store drops
the group and reloads the keys from the journal.

Leases run on the injected clock. After a restart, revisions continue from the last one in the journal; revisions of
later changes to leased keys are reused, because those keys are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from tests.coordinator.embedded_kv.embedded_journal import EmbeddedJournal, StoredKeys
from tests.coordinator.embedded_kv.key_draft import EndLease, KeyDraft, Outcome, Request, Transaction
from tests.coordinator.embedded_kv.key_space import HISTORY_EVENTS_MAX, KeySpace

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import (
    RANGE_LIMIT,
    Compare,
    KeyValue,
    KeyValueStore,
    Lease,
    LeaseLost,
    Operation,
    RangePage,
    TransactionResult,
    WatchBatch,
)
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Conflict, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

WAITING_MAX = 10_000
"""The most requests in the queue; the store refuses further ones."""
_LEASE_ID_DIGITS = 15
"""Hexadecimal, so an id is below 2**60; etcd's ids are signed 64-bit numbers."""
_RETRY = Backoff(first_s=0.1, max_s=2.0)

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Pending:
    """A queued request and the future that its caller awaits."""

    request: Request
    result: asyncio.Future[TransactionResult]

    def answer(self, outcome: TransactionResult | TidelogError) -> None:
        """Give the caller its answer, unless it has one or was cancelled."""
        if self.result.done():
            return
        if isinstance(outcome, TransactionResult):
            self.result.set_result(outcome)
        else:
            self.result.set_exception(outcome)


@dataclass(frozen=True)
class _Group:
    """Requests that are written as one entry, what they do, and their outcomes."""

    group_id: str
    pending: Sequence[_Pending]
    draft: KeyDraft
    outcomes: Sequence[Outcome]


@dataclass
class _LiveLease:
    ttl_s: float
    ends_s: float
    expiry: asyncio.Task[None]


class EmbeddedKeyValueStore(KeyValueStore):
    """See the module docstring. `journal` must be open."""

    def __init__(
        self, runtime: Runtime, journal: Journal | None = None, *, history_events_max: int = HISTORY_EVENTS_MAX
    ) -> None:
        self._runtime = runtime
        self._journal = EmbeddedJournal(journal, runtime) if journal else None
        self._incarnation = runtime.entropy.new_id()
        self._history_events_max = history_events_max
        self._space = KeySpace(history_events_max=history_events_max)
        self._leases: dict[int, _LiveLease] = {}
        self._waiting: list[_Pending] = []
        self._committing: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._in_doubt: _Group | None = None
        self._failures = 0
        self._changed = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Read the keys in the journal. Call it before anything else."""
        if self._journal is not None:
            kept = self._journal.read()
            self._incarnation = kept.incarnation
            self._space = KeySpace(kept.items, kept.revision, self._history_events_max)

    async def get(self, key: str) -> KeyValue | None:
        return self._space.get(key)

    async def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        return self._space.range(prefix, limit=limit, after=after, revision=revision)

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        return await self._request(Transaction(compares, then, otherwise))

    async def grant(self, ttl_s: float) -> Lease:
        self._check_open()
        lease_id = int(self._runtime.entropy.new_id()[:_LEASE_ID_DIGITS], 16)
        ends_s = self._runtime.clock.monotonic() + ttl_s
        self._leases[lease_id] = _LiveLease(ttl_s, ends_s, asyncio.create_task(self._expire(lease_id)))
        return Lease(lease_id, ttl_s)

    async def keep_alive(self, lease_id: int) -> float:
        self._check_open()
        if not self._lease_lives(lease_id):
            raise LeaseLost(f"lease {lease_id:x} has ended or never existed: grant a new one")
        lease = self._leases[lease_id]
        lease.ends_s = self._runtime.clock.monotonic() + lease.ttl_s
        return lease.ttl_s

    async def revoke(self, lease_id: int) -> None:
        await self._request(EndLease(lease_id))

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        next_revision = from_revision
        while True:
            changed = self._changed
            if next_revision <= self._space.revision:
                batch = self._space.events(prefix, next_revision)
                next_revision = batch.revision + 1
                if batch.events:
                    yield batch
                    continue
            self._check_open()
            await changed.wait()

    async def incarnation(self) -> str:
        return self._incarnation

    async def aclose(self) -> None:
        """Cancels changes in progress; their outcome is unknown."""
        self._closed = True
        tasks = [lease.expiry for lease in self._leases.values()]
        tasks += [task for task in (self._committing, self._settling) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        _answer_all(self._waiting, Unavailable("the store was closed; the change was not applied"))
        self._wake_watches()

    # ---- changes

    async def _request(self, request: Request) -> TransactionResult:
        self._check_open()
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX:,} changes wait for the bucket; retry later", retry_after_s=1.0)
        waiting = _Pending(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._commit_soon()
        return await waiting.result

    def _commit_soon(self) -> None:
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())

    async def _commit_waiting(self) -> None:
        """Commit groups until the queue is empty; the first one may be empty, to settle a group in doubt."""
        more = True
        while more:
            pending, self._waiting = self._waiting, []
            try:
                await self._commit(pending)
                self._failures = 0
            except TidelogError as error:
                self._failures += 1
                _answer_all(pending, error)
            finally:
                _answer_all(pending, Unavailable("the store was closed; whether the change was applied is unknown"))
            more = bool(self._waiting)
        if self._in_doubt and (self._settling is None or self._settling.done()):
            self._settling = asyncio.create_task(self._settle_later())

    async def _commit(self, pending: Sequence[_Pending]) -> None:
        if self._in_doubt:
            await self._write(self._in_doubt)
        while not await self._write(self._group_of(pending)):
            pass  # another process has written: compute the requests again on its keys

    async def _write(self, group: _Group) -> bool:
        """Write, apply and answer `group`. Returns False if another process has written; then the keys are reloaded."""
        if self._journal is not None:
            try:
                await self._journal.write(group.draft, group.group_id)
            except Conflict:
                self._in_doubt = None
                self._reload(self._journal.read())
                return False
            except Unavailable:
                self._in_doubt = group
                raise
        self._in_doubt = None
        self._apply(group.draft)
        for pending, outcome in zip(group.pending, group.outcomes, strict=True):
            pending.answer(outcome)
        return True

    async def _settle_later(self) -> None:
        """Write a group in doubt again although no further change is requested."""
        await self._runtime.clock.sleep(_RETRY.delay_s(max(1, self._failures), self._runtime.entropy))
        self._commit_soon()

    def _group_of(self, pending: Sequence[_Pending]) -> _Group:
        draft = KeyDraft(self._space, self._lease_lives)
        outcomes = [draft.run(each.request) for each in pending]
        group_id = self._runtime.entropy.new_id() if self._journal else ""
        return _Group(group_id, pending, draft, outcomes)

    def _apply(self, draft: KeyDraft) -> None:
        self._space.apply(draft.changes)
        for lease_id in draft.ended_leases:
            if lease := self._leases.pop(lease_id, None):
                lease.expiry.cancel()
        if draft.changes:
            self._wake_watches()

    def _reload(self, kept: StoredKeys) -> None:
        """Another process wrote: take its keys and our leased ones. A watch gets `Compacted` and must read again."""
        items = {item.key: item for item in (*self._space.leased_items(), *kept.items)}
        revision = max(kept.revision, self._space.revision) + 1
        self._space = KeySpace(tuple(items.values()), revision, self._history_events_max)
        self._wake_watches()

    def _wake_watches(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the key-value store is closed")

    # ---- leases

    def _lease_lives(self, lease_id: int) -> bool:
        lease = self._leases.get(lease_id)
        return lease is not None and self._runtime.clock.monotonic() < lease.ends_s

    async def _expire(self, lease_id: int) -> None:
        """End the lease when its time is up, and retry until that succeeds."""
        failures = 0
        while lease := self._leases.get(lease_id):
            if (left_s := lease.ends_s - self._runtime.clock.monotonic()) > 0:
                await self._runtime.clock.sleep(left_s)
                continue
            try:
                await self._request(EndLease(lease_id))
            except Unavailable as error:
                failures += 1
                _log.warning("lease %x has ended; deleting its keys failed, retrying: %s", lease_id, error)
                await self._runtime.clock.sleep(_RETRY.delay_s(failures, self._runtime.entropy))


def _answer_all(group: Sequence[_Pending], error: TidelogError) -> None:
    """Answer with `error` each request of the group that has no answer yet."""
    for waiting in group:
        waiting.answer(error)
