"""A prefix of the key-value store as a dict in memory, kept current by one watch.

    mirror = KeyMirror(kv, "/tidelog/main/", runtime)
    await mirror.start()            # the first reading; raises Unavailable
    mirror.on_change(lambda: ...)
    mirror.items["/tidelog/main/identity"]

It reads the prefix at one revision, page by page, and watches from the next revision on. So `items` is always what the
prefix was at `revision`: some moment of the past, never a mixture of two. Whoever acts on it compares in a transaction.

- **Compacted, or a store of another incarnation**: it is read anew.
- **Unavailable**: the last state stays, `stale` says so, and it goes on when the store answers.
- **A watch that hangs** (a member cut off from its cluster keeps the stream open and sends nothing) or that leaves out
  a change is found by reading the prefix every `CHECK_S`. If the mirror holds other keys than the store, the watch has
  `OVERDUE_S` to deliver what it owes. After that the prefix is read anew if the mirror is still behind that reading, or
  if the store held other keys at the mirror's own revision. Both comparisons are of all keys, so they show deletions.
- **A state that is not believed** (`believes` says no: the prefix was wiped) is not taken; the last one stays,
  `refused` is True, and every `REFUSED_RETRY_S` it is read anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from types import MappingProxyType

from tidelog.coordinator.kv.key_value import Compacted, EventKind, KeyValue, KeyValueStore, WatchBatch
from tidelog.coordinator.leadership.waiting import OnFailure, first_of, log_failure, spawn
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

CHECK_S = 30.0
OVERDUE_S = 2.0
REFUSED_RETRY_S = 2.0
_RETRY = Backoff(first_s=0.1, max_s=2.0)

_log = logging.getLogger(__name__)

Items = Mapping[str, KeyValue]


class KeyMirror:
    """See the module's head. `believes` is asked of every state but the first before it is taken; `on_failure` hears of
    a defect that ended the following."""

    def __init__(
        self,
        kv: KeyValueStore,
        prefix: str,
        runtime: Runtime,
        *,
        believes: Callable[[Items], bool] = lambda _: True,
        on_failure: OnFailure = log_failure,
    ) -> None:
        self._kv = kv
        self._prefix = prefix
        self._runtime = runtime
        self._believes = believes
        self._on_failure = on_failure
        self._items: dict[str, KeyValue] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._anew = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._following: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self.revision = 0
        self.incarnation = ""
        self.stale = True
        self.refused = False

    @property
    def items(self) -> Items:
        """Every key of the prefix as it was at `revision`."""
        return MappingProxyType(self._items)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` at every change of the state, of `stale` or `refused`. It must not raise."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Read for the first time, and keep current from then on. Raises `Unavailable`, `Denied`."""
        await self._read()
        self._following = spawn(self._follow(), self._on_failure)
        self._checking = spawn(self._check(), self._on_failure)

    async def aclose(self) -> None:
        """Stop; the last state stays."""
        tasks = [task for task in (self._following, self._checking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def read_anew(self) -> None:
        """Something says that the watch may follow a store that is no more: read all again, soon."""
        self._anew.set()

    async def refresh(self) -> None:
        """Read all again; returns when that was begun and done after this call. Raises `Unavailable`, `Denied`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._anew.set()
        await done

    # ---- following

    async def _follow(self) -> None:
        """Watch, and read anew whenever the watch ends, for ever."""
        failures = 0
        while True:
            try:
                await self._wait_until_told()
                await self._read()
                failures = 0
            except Compacted:
                self._anew.set()
            except TidelogError as error:
                failures += 1
                _log.warning("%s cannot be read, and what is known of it stays: %s", self._prefix, error)
                self._mark(stale=True, refused=self.refused)
                self._anew.set()
                await self._runtime.clock.sleep(_RETRY.delay_s(failures, self._runtime.entropy))

    async def _wait_until_told(self) -> None:
        """Take in change after change, until `read_anew`. A store that is not believed is not watched: its changes do
        not belong to the state that is kept."""
        if self.refused:
            await first_of(self._runtime.clock.sleep(REFUSED_RETRY_S), self._anew.wait())
        else:
            await first_of(self._watch(), self._anew.wait())

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
            self.read_anew()
        if not batch.events:
            self.revision = max(self.revision, batch.revision)

    async def _read(self) -> None:
        """All of the prefix, as of one revision; and those who wait for that are told."""
        self._anew.clear()
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
        """Make it the state, unless it is not believed; whether it is."""
        believed = not self.revision or self._believes(items)
        if believed:
            self._items, self.revision = items, revision
        self._mark(stale=not believed, refused=not believed)
        return believed

    def _mark(self, *, stale: bool, refused: bool) -> None:
        if refused and not self.refused:
            _log.warning("%s is not what it was; the last state stays", self._prefix)
        self.stale, self.refused = stale, refused
        for callback in self._callbacks:
            callback()

    # ---- checking

    async def _check(self) -> None:
        """Compare with the store now and then."""
        while True:
            await self._runtime.clock.sleep(CHECK_S)
            try:
                if not self.refused and await self._is_overdue():
                    self.read_anew()
            except TidelogError as error:
                _log.info("%s could not be compared with the store: %s", self._prefix, error)

    async def _is_overdue(self) -> bool:
        """Whether the store has had another state for longer than a watch may lag."""
        if await self._kv.incarnation() != self.incarnation:
            return True
        there, revision = await read_prefix(self._kv, self._prefix)
        if _state(there) == _state(self._items.values()):
            return False
        await self._runtime.clock.sleep(OVERDUE_S)
        here = self._items  # never changed in place
        if self.revision >= revision:  # it has gone on meanwhile: was anything left out?
            there, _ = await read_prefix(self._kv, self._prefix, self.revision)
        return _state(there) != _state(here.values())


async def read_prefix(kv: KeyValueStore, prefix: str, revision: int | None = None) -> tuple[list[KeyValue], int]:
    """Every key of `prefix` at one revision, the newest unless it is named, and that revision. Raises `Compacted` if it
    is gone before the end."""
    page = await kv.range(prefix, revision=revision)
    items, revision = list(page.items), page.revision
    while page.more:
        page = await kv.range(prefix, after=items[-1].key, revision=revision)
        items.extend(page.items)
    return items, revision


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
