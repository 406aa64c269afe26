"""Keeps a prefix of the key-value store in memory as a dict, updated by one watch.

    mirror = KeyMirror(kv, "/tidelog/main/", runtime)
    await mirror.start()            # the first read; raises Unavailable
    mirror.on_change(lambda: ...)
    mirror.items["/tidelog/main/identity"]

The mirror reads the prefix at one revision, page by page, and watches from the next revision on. So `items` is always
the prefix at one past revision, `revision`. A caller that acts on it must compare in a transaction.

- **`Compacted`, or a store with another incarnation**: the mirror reads the prefix again.
- **`Unavailable`**: the last state stays, `stale` is True, and the mirror retries.
- **A watch that hangs or omits a change** (a member cut off from its cluster keeps the stream open and sends nothing):
  the mirror reads the prefix every `CHECK_S`. If its keys differ from the store's, the watch has `OVERDUE_S` to
  deliver the difference. Then the mirror reads the prefix again if it is still behind that read, or if the store held
  other keys at the mirror's own revision. Both comparisons cover all keys, so they detect deletions too.
- **A state that `accepts` rejects** (the prefix was wiped): the last state stays, `rejected` is True, and the mirror
  reads the prefix again every `REJECTED_RETRY_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from types import MappingProxyType

from tidelog.coordinator.kv.key_value import Compacted, EventKind, KeyValue, KeyValueStore, WatchBatch, read_prefix
from tidelog.coordinator.leadership.tasks import OnFailure, cancel_all, first_of, log_failure, spawn
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

CHECK_S = 30.0
OVERDUE_S = 2.0
REJECTED_RETRY_S = 2.0
_RETRY = Backoff(first_s=0.1, max_s=2.0)

_log = logging.getLogger(__name__)

Items = Mapping[str, KeyValue]


class KeyMirror:
    """See the module docstring. `accepts` is called with each new state except the first, before the mirror takes it.
    `on_failure` is called with a defect that ended a task."""

    def __init__(
        self,
        kv: KeyValueStore,
        prefix: str,
        runtime: Runtime,
        *,
        accepts: Callable[[Items], bool] = lambda _: True,
        on_failure: OnFailure = log_failure,
    ) -> None:
        self._kv = kv
        self._prefix = prefix
        self._runtime = runtime
        self._accepts = accepts
        self._on_failure = on_failure
        self._items: dict[str, KeyValue] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._read_requested = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.revision = 0
        self.incarnation = ""
        self.stale = True
        self.rejected = False

    @property
    def items(self) -> Items:
        """All keys of the prefix at `revision`."""
        return MappingProxyType(self._items)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` at each change of the state, of `stale` or `rejected`. It must not raise."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Read the prefix and begin to follow it. Raises `Unavailable`, `Denied`."""
        await self._read()
        self._tasks = [spawn(work, self._on_failure) for work in (self._follow(), self._check())]

    async def aclose(self) -> None:
        """Stop; the last state stays."""
        await cancel_all(self._tasks)

    def read_again(self) -> None:
        """Read the prefix again soon: the watch may have missed a change."""
        self._read_requested.set()

    async def refresh(self) -> None:
        """Return after a read of the prefix that began after this call. Raises `Unavailable`, `Denied`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._read_requested.set()
        await done

    async def _follow(self) -> None:
        """Watch until cancelled; read the prefix again whenever the watch ends."""
        failures = 0
        while True:
            try:
                await self._watch_until_read_requested()
                await self._read()
                failures = 0
            except Compacted:
                self._read_requested.set()
            except TidelogError as error:
                failures += 1
                _log.warning("cannot read %s, keeping the last known state: %s", self._prefix, error)
                self._mark(stale=True, rejected=self.rejected)
                self._read_requested.set()
                await self._runtime.clock.sleep(_RETRY.delay_s(failures, self._runtime.entropy))

    async def _watch_until_read_requested(self) -> None:
        """Apply changes until `read_again` is called. A rejected store is not watched: its changes do not belong to the
        state that is kept."""
        if self.rejected:
            await first_of(self._runtime.clock.sleep(REJECTED_RETRY_S), self._read_requested.wait())
        else:
            await first_of(self._watch(), self._read_requested.wait())

    async def _watch(self) -> None:
        async with aclosing(self._kv.watch(self._prefix, self.revision + 1)) as batches:
            async for batch in batches:
                self._take_batch(batch)

    def _take_batch(self, batch: WatchBatch) -> None:
        changed = dict(self._items) if batch.events else self._items
        for event in batch.events:
            if event.kind is EventKind.PUT:
                changed[event.item.key] = event.item
            else:
                changed.pop(event.item.key, None)
        if batch.events and not self._take(changed, batch.revision):
            self.read_again()
        if not batch.events:
            self.revision = max(self.revision, batch.revision)

    async def _read(self) -> None:
        """Read the prefix at one revision, and answer the callers of `refresh`."""
        self._read_requested.clear()
        waiting, self._waiting = self._waiting, []
        try:
            incarnation = await self._kv.incarnation()
            items, revision = await read_prefix(self._kv, self._prefix)
        except TidelogError as error:
            _answer(waiting, error)
            raise
        self.incarnation = incarnation
        self._take({item.key: item for item in items}, revision)
        _answer(waiting, None)

    def _take(self, items: dict[str, KeyValue], revision: int) -> bool:
        """Replace the state by `items` unless `accepts` rejects them; returns whether it did."""
        accepted = not self.revision or self._accepts(items)
        if accepted:
            self._items, self.revision = items, revision
        self._mark(stale=not accepted, rejected=not accepted)
        return accepted

    def _mark(self, *, stale: bool, rejected: bool) -> None:
        if rejected and not self.rejected:
            _log.warning("%s no longer holds this cluster; keeping the last known state", self._prefix)
        self.stale, self.rejected = stale, rejected
        for callback in self._callbacks:
            callback()

    async def _check(self) -> None:
        """Compare with the store periodically."""
        while True:
            await self._runtime.clock.sleep(CHECK_S)
            try:
                if not self.rejected and await self._is_overdue():
                    self.read_again()
            except TidelogError as error:
                _log.info("could not compare %s with the store: %s", self._prefix, error)

    async def _is_overdue(self) -> bool:
        """Whether the watch has missed a change, or lags by more than `OVERDUE_S`."""
        if await self._kv.incarnation() != self.incarnation:
            return True
        there, revision = await read_prefix(self._kv, self._prefix)
        if _state(there) == _state(self._items.values()):
            return False
        await self._runtime.clock.sleep(OVERDUE_S)
        here = self._items  # never changed in place
        if self.revision >= revision:  # it has caught up: did the watch omit a change?
            there, _ = await read_prefix(self._kv, self._prefix, self.revision)
        return _state(there) != _state(here.values())


def _answer(waiting: Iterable[asyncio.Future[None]], error: TidelogError | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def _state(items: Iterable[KeyValue]) -> dict[str, int]:
    return {item.key: item.mod_revision for item in items}
