"""Keeps a broker's journal, and so its topics, in step with the other brokers'.

Whoever appends to the journal puts its next number under the cluster's key ``journal``, as well as it can; everybody
watches that key and reads the journal on when the number is above their own. The key is a hint that saves waiting, not
a truth: it may lag or be lost. So nothing is missed without it, only later: the journal is read on every `POLL_S` while
the key-value store does not answer, every `READ_ANYHOW_S` though it does (a writer may have died before it put the
number), and at a request for a topic that is not known here (`refresh`).

    sync = CatalogSync(journal, catalog, kv, keys, runtime)
    sync.on_change(lambda change: ...)      # topics created, altered, deleted, here or elsewhere
    await sync.start()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import Compacted, KeyValue, KeyValueStore, PutKey, absent, unchanged
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.errors import TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

POLL_S = 5.0
READ_ANYHOW_S = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """Topics that are other than at the last change told, each by name. One that was deleted and created again is
    among both."""

    created: Sequence[Topic]
    altered: Sequence[Topic]
    deleted: Sequence[Topic]


class CatalogSync:
    """See the module's head. An open `journal`; it observes it from the start."""

    def __init__(
        self, journal: Journal, catalog: Catalog, kv: KeyValueStore, keys: ClusterKeys, runtime: Runtime
    ) -> None:
        self._journal = journal
        self._catalog = catalog
        self._kv = kv
        self._key = keys.journal
        self._runtime = runtime
        self._told: dict[str, Topic] = {}
        self._callbacks: list[Callable[[CatalogChange], None]] = []
        self._reading: asyncio.Task[None] | None = None
        self._next_reading: asyncio.Task[None] | None = None
        self._own_entries = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def on_change(self, callback: Callable[[CatalogChange], None]) -> None:
        """Call `callback` at every change from now on, on the event loop, as soon as it is known. It must not raise."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Begin to publish and to follow. Does not wait for the key-value store."""
        self._told = _by_id(self._catalog)
        self._journal.observe(self)
        self._own_entries.set()  # some may be older than this: the cluster's founding, or its growth
        self._tasks = [asyncio.create_task(work) for work in (self._watch(), self._poll(), self._publish())]

    async def aclose(self) -> None:
        """Stop following; what was not published is left to the others' polls."""
        tasks = [*self._tasks, *(task for task in (self._reading, self._next_reading) if task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self) -> None:
        """Read the journal on, so that all that was appended before this call is known; one request if nothing is new,
        shared by all who wait. Raises `Unavailable`, `Corrupt`."""
        if self._next_reading is None:
            self._next_reading = asyncio.create_task(self._read_after(self._reading))
        reading = self._next_reading
        await asyncio.wait([reading])  # a caller that is cancelled leaves it to the others
        if reading.cancelled():
            raise Unavailable("the broker is stopping")
        reading.result()

    async def _read_after(self, running: asyncio.Task[None] | None) -> None:
        """A reading that has begun may have passed the end already: who comes later shares the one after it."""
        if running is not None and not running.done():
            await asyncio.wait([running])
        self._reading, self._next_reading = self._next_reading, None
        await self._journal.catch_up()

    # ---- the journal's observer

    def advanced(self) -> None:
        """Tell of the topics that changed."""
        topics = _by_id(self._catalog)
        change = _difference(self._told, topics)
        self._told = topics
        if change.created or change.altered or change.deleted:
            for callback in self._callbacks:
                callback(change)

    def appended(self) -> None:
        """Have the number published."""
        self._own_entries.set()

    # ---- the key

    async def _publish(self) -> None:
        """Put the journal's number whenever this broker has written, as often as it takes."""
        while True:
            await self._own_entries.wait()
            self._own_entries.clear()
            try:
                await self._raise_number()
            except TidelogError as error:
                _log.info("the journal's next number could not be published; others will poll: %s", error)
                self._own_entries.set()
                await self._runtime.clock.sleep(POLL_S)

    async def _raise_number(self) -> None:
        """Never lowers what is there."""
        while True:
            found, number = await self._kv.get(self._key), self._journal.next_number
            if _number(found) >= number:
                return
            compare = absent(self._key) if found is None else unchanged(found)
            if (await self._kv.transact([compare], [PutKey(self._key, b"%d" % number)])).succeeded:
                return

    async def _watch(self) -> None:
        """Read on as soon as the number rises."""
        while True:
            try:
                page = await self._kv.range(self._key, limit=1)
                async with aclosing(self._kv.watch(self._key, page.revision + 1)) as batches:
                    async for batch in batches:
                        await self._read_up_to(max((_number(event.item) for event in batch.events), default=0))
            except Compacted:
                continue
            except TidelogError as error:
                _log.info("the journal's number cannot be watched; it is polled: %s", error)
                await self._runtime.clock.sleep(POLL_S)

    async def _poll(self) -> None:
        clock, read_at_s = self._runtime.clock, self._runtime.clock.monotonic()
        while True:
            await clock.sleep(POLL_S)
            heard = await self._hear()
            try:
                if not heard or clock.monotonic() - read_at_s >= READ_ANYHOW_S:
                    await self.refresh()
                    read_at_s = clock.monotonic()
            except TidelogError as error:
                _log.warning("the journal cannot be read on: %s", error)

    async def _hear(self) -> bool:
        """Whether the key-value store told the number, and the journal is known up to it."""
        try:
            await self._read_up_to(_number(await self._kv.get(self._key)))
        except TidelogError as error:
            _log.info("the journal's number cannot be read; the journal itself is: %s", error)
            return False
        return True

    async def _read_up_to(self, number: int) -> None:
        if number > self._journal.next_number:
            await self.refresh()


def _number(item: KeyValue | None) -> int:
    """0 for a key that is absent, deleted or no number: a hint may be missing."""
    return int(item.value) if item is not None and item.value.isdigit() else 0


def _by_id(catalog: Catalog) -> dict[str, Topic]:
    return {topic.topic_id: topic for topic in catalog.list_topics()}


def _difference(before: dict[str, Topic], after: dict[str, Topic]) -> CatalogChange:
    return CatalogChange(
        created=tuple(topic for topic_id, topic in after.items() if topic_id not in before),
        altered=tuple(topic for topic_id, topic in after.items() if before.get(topic_id, topic) != topic),
        deleted=tuple(topic for topic_id, topic in before.items() if topic_id not in after),
    )
