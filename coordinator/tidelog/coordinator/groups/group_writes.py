"""Writes the changes of all groups of a shard to the store, one write at a time.

- Changes that arrive while a write is under way go together into the next one. So the number of writes follows the
  store's speed, not the number of commits.
- A reply is given once the changes that it rests on are stored (`after`). Changes that no reply waits for are gathered
  for `WriteBounds.unhurried_s`: a REST consumer that reads hundreds of pages a second costs ten writes a second.
- A write whose outcome is unknown is repeated with growing pauses until it succeeds. This is safe because changes are
  absolute and the store fences them. Replies do not wait longer than `WriteBounds.wait_s`; then they fail with
  `Unavailable`, and the write is still repeated.
- Any other failure ends the coordinator (`on_end`): what it has in memory may differ from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Denied, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

REPEAT = Backoff(first_s=0.05, max_s=2.0)
"""The pause before a write is repeated."""
CHANGE_OVERHEAD_BYTES = 200
"""A change counts as this many bytes more than its key and value."""

_log = logging.getLogger(__name__)

Settle = Callable[[TidelogError | None], None]
"""Gives a reply, or fails it with an error."""


@dataclass(frozen=True)
class WriteBounds:
    """`wait_s`: how long a reply waits for the store. `bytes_max`: changes that are not stored yet; beyond that,
    requests that would add to them are refused. `interval_s`: the least time between the starts of two writes.
    `unhurried_s`: how long changes that no reply waits for are kept back."""

    wait_s: float = 10.0
    bytes_max: int = 32 << 20
    interval_s: float = 0.0
    unhurried_s: float = 0.1


@dataclass
class _Batch:
    """The changes of one write: of a key that changes twice the last one only, so that a store that is away does not
    fill the memory. The store applies the changes of a group together."""

    changes: dict[str, Change] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    waiting: deque[tuple[float, Settle]] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, change: Change) -> None:
        before = self.changes.pop(change.key, None)
        self.size_bytes += _size(change) - (_size(before) if before else 0)
        self.changes[change.key] = change

    def settle(self, error: TidelogError | None) -> None:
        while self.waiting:
            self.waiting.popleft()[1](error)


class GroupWrites:
    """`on_end` is called with the error that ended the writes; they do nothing from then on."""

    def __init__(
        self,
        store: GroupStore,
        runtime: Runtime,
        bounds: WriteBounds,
        counts: GroupCounts,
        on_end: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = runtime.clock
        self._bounds = bounds
        self._counts = counts
        self._on_end = on_end
        self._writing: _Batch | None = None
        self._next = _Batch()
        self._task: asyncio.Task[None] | None = None
        self._began_s = float("-inf")
        self._hurry = asyncio.Event()
        self.failing = False

    @property
    def full(self) -> bool:
        """Whether so many changes wait that no request may add to them."""
        return sum(batch.size_bytes for batch in self._batches()) >= self._bounds.bytes_max

    @property
    def idle(self) -> bool:
        return self._writing is None and not self._next.changes

    def pending(self, group: str) -> bool:
        """Whether changes of `group` are not stored yet."""
        return any(group in batch.groups for batch in self._batches())

    def add(self, group: str, changes: Sequence[Change]) -> None:
        """Write `changes` of `group` after all that were added before."""
        if not changes:
            return
        for change in changes:
            self._next.add(change)
        self._next.groups.add(group)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def after(self, group: str, rests_on: frozenset[str] | None, settle: Settle) -> bool:
        """Call `settle` once the changes of the keys `rests_on` (None: all changes of `group`) are stored, or have
        failed. Returns False, without a call, if they are stored already."""
        for batch in (self._next, self._writing):
            if batch and (group in batch.groups if rests_on is None else not rests_on.isdisjoint(batch.changes)):
                batch.waiting.append((self._clock.monotonic(), settle))
                if batch is self._next:
                    self._hurry.set()
                return True
        return False

    def expire(self) -> None:
        """Fail the replies that have waited too long for the store."""
        since_s = self._clock.monotonic() - self._bounds.wait_s
        for batch in self._batches():
            while batch.waiting and batch.waiting[0][0] <= since_s:
                batch.waiting.popleft()[1](
                    Unavailable(
                        f"the store of groups did not answer within {self._bounds.wait_s:.0f} s: the outcome is "
                        "unknown. Repeat the request"
                    )
                )

    async def flush(self, timeout_s: float) -> None:
        """Return when everything is stored or the writes have ended, or after `timeout_s`."""
        self._hurry.set()
        if self._task and not self._task.done():
            await asyncio.wait((self._task,), timeout=timeout_s)

    async def stored(self, group: str) -> None:
        """Return when nothing of `group` is pending. Raises `Unavailable` after the bound."""
        while self.pending(group):
            outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.after(group, None, partial(_resolve, outcome))
            await outcome

    def end(self, error: TidelogError) -> None:
        """Stop writing; the waiting replies fail with `error`."""
        if self._task and self._task is not asyncio.current_task():
            self._task.cancel()
        for batch in self._batches():
            batch.settle(error)
        self._writing, self._next = None, _Batch()

    def _batches(self) -> Iterable[_Batch]:
        return (self._writing, self._next) if self._writing else (self._next,)

    async def _run(self) -> None:
        try:
            while self._next.changes:
                await self._rest()
                await self._unless_hurried()
                batch = self._writing = self._next
                self._next = _Batch()
                self._hurry.clear()
                await self._write(batch)
                self._writing = None
                batch.settle(None)
        except Exception as error:
            self._on_end(error)

    async def _rest(self) -> None:
        rest_s = self._began_s + self._bounds.interval_s - self._clock.monotonic()
        if rest_s > 0:
            await self._clock.sleep(rest_s)

    async def _unless_hurried(self) -> None:
        """Wait as long as no reply waits for the next write, but not longer than `unhurried_s`."""
        if self._hurry.is_set() or not self._bounds.unhurried_s:
            return
        waits = (
            asyncio.ensure_future(self._hurry.wait()),
            asyncio.ensure_future(self._clock.sleep(self._bounds.unhurried_s)),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _write(self, batch: _Batch) -> None:
        self._began_s = self._clock.monotonic()
        changes, failures = tuple(batch.changes.values()), 0
        while error := await self._try(changes):
            if not self.failing:
                _log.warning("changes of groups cannot be stored; the broker repeats the write: %s", error)
            self.failing = True
            failures += 1
            await self._clock.sleep(REPEAT.delay_s(failures, self._runtime.entropy))
        if self.failing:
            _log.warning("changes of groups are stored again")
        self.failing = False

    async def _try(self, changes: Sequence[Change]) -> TidelogError | None:
        """Write `changes`; None if that succeeded. Raises an error after which a repetition is no use."""
        began_s = self._clock.monotonic()
        try:
            await self._store.write(changes)
        except (Unavailable, Denied) as error:
            self._counts.writes_failed += 1
            return error
        self._counts.wrote(self._clock.monotonic() - began_s, len(changes))
        return None


def _size(change: Change) -> int:
    value = len(change.value) if isinstance(change, PutKey) else 0
    return CHANGE_OVERHEAD_BYTES + len(change.key) + value


def _resolve(outcome: asyncio.Future[None], error: TidelogError | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)
