"""Keeps a broker's journal, and so its topics, in step with those of the other brokers.

A broker that appends to the journal puts the journal's next number under the cluster's key ``journal``. All brokers
watch that key and read the journal when its number is above their own. The key is only a hint that shortens the wait;
it may lag or be lost. Without it a broker reads the journal
- every `POLL_S` while the key-value store does not answer,
- every `READ_ANYHOW_S` in any case: a writer may have died before it put the number,
- when a request names a topic that it does not know (`refresh`).

    sync = CatalogSync(journal, catalog, kv, keys, runtime)
    sync.on_change(lambda change: ...)      # topics created, altered, deleted, by this broker or another
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
from tidelog.coordinator.kv.key_value import Compacted, KeyValue, KeyValueStore, update_key
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.errors import TidelogError, Unavailable
from tidelog.storage.runtime import Runtime

POLL_S = 5.0
READ_ANYHOW_S = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """The topics that differ from the last reported change. A topic that was deleted and created again is in both."""

    created: Sequence[Topic]
    altered: Sequence[Topic]
    deleted: Sequence[Topic]


class CatalogSync:
    """See the module docstring. `journal` must be open; `start` begins to observe it."""

    def __init__(
        self, journal: Journal, catalog: Catalog, kv: KeyValueStore, keys: ClusterKeys, runtime: Runtime
    ) -> None:
        self._journal = journal
        self._catalog = catalog
        self._kv = kv
        self._key = keys.journal
        self._runtime = runtime
        self._reported: dict[str, Topic] = {}
        self._callbacks: list[Callable[[CatalogChange], None]] = []
        self._reading: asyncio.Task[None] | None = None
        self._next_reading: asyncio.Task[None] | None = None
        self._appended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def on_change(self, callback: Callable[[CatalogChange], None]) -> None:
        """Call `callback` at each change from now on, on the event loop. It must not raise."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Begin to publish and to watch. Does not wait for the key-value store."""
        self._reported = _by_id(self._catalog)
        self._journal.observe(self)
        self._appended.set()  # entries may be older than this: those of founding the cluster, for example
        self._tasks = [asyncio.create_task(work) for work in (self._watch(), self._poll(), self._publish())]

    async def aclose(self) -> None:
        """Stop. The other brokers find unpublished entries when they poll."""
        tasks = [*self._tasks, *(task for task in (self._reading, self._next_reading) if task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self) -> None:
        """Read all entries that were appended before this call. Concurrent callers share one read, which is one request
        if there is no new entry. Raises `Unavailable`, `Corrupt`."""
        if self._next_reading is None:
            self._next_reading = asyncio.create_task(self._read_after(self._reading))
        reading = self._next_reading
        await asyncio.wait([reading])  # `wait`: a cancelled caller does not cancel it for the others
        if reading.cancelled():
            raise Unavailable("the broker is stopping")
        reading.result()

    async def _read_after(self, running: asyncio.Task[None] | None) -> None:
        """A read in progress may already have passed the end, so callers that come later share the next one."""
        if running is not None and not running.done():
            await asyncio.wait([running])
        self._reading, self._next_reading = self._next_reading, None
        await self._journal.catch_up()

    def advanced(self) -> None:
        """Report the topics that changed."""
        topics = _by_id(self._catalog)
        change = _difference(self._reported, topics)
        self._reported = topics
        if change.created or change.altered or change.deleted:
            for callback in self._callbacks:
                callback(change)

    def appended(self) -> None:
        """Publish the number."""
        self._appended.set()

    async def _publish(self) -> None:
        """Put the journal's number whenever this broker has appended; retry until that succeeds."""
        while True:
            await self._appended.wait()
            self._appended.clear()
            try:
                await update_key(self._kv, self._key, self._raised)
            except TidelogError as error:
                _log.info("could not publish the journal's next number, retrying: %s", error)
                self._appended.set()
                await self._runtime.clock.sleep(POLL_S)

    def _raised(self, found: KeyValue | None) -> bytes | None:
        """The number to put, None if the key holds that or a higher one."""
        number = self._journal.next_number
        return b"%d" % number if _number(found) < number else None

    async def _watch(self) -> None:
        """Read the journal as soon as the number rises."""
        while True:
            try:
                page = await self._kv.range(self._key, limit=1)
                async with aclosing(self._kv.watch(self._key, page.revision + 1)) as batches:
                    async for batch in batches:
                        await self._read_up_to(max((_number(event.item) for event in batch.events), default=0))
            except Compacted:
                continue
            except TidelogError as error:
                _log.info("could not watch the journal's number, polling it: %s", error)
                await self._runtime.clock.sleep(POLL_S)

    async def _poll(self) -> None:
        clock, read_at_s = self._runtime.clock, self._runtime.clock.monotonic()
        while True:
            await clock.sleep(POLL_S)
            checked = await self._check_number()
            try:
                if not checked or clock.monotonic() - read_at_s >= READ_ANYHOW_S:
                    await self.refresh()
                    read_at_s = clock.monotonic()
            except TidelogError as error:
                _log.warning("could not read the journal: %s", error)

    async def _check_number(self) -> bool:
        """Read the journal up to the number in the key-value store; returns whether that succeeded."""
        try:
            await self._read_up_to(_number(await self._kv.get(self._key)))
        except TidelogError as error:
            _log.info("could not read the journal's number, reading the journal: %s", error)
            return False
        return True

    async def _read_up_to(self, number: int) -> None:
        if number > self._journal.next_number:
            await self.refresh()


def _number(item: KeyValue | None) -> int:
    """0 if the key is absent, deleted or not a number: it is only a hint."""
    return int(item.value) if item is not None and item.value.isdigit() else 0


def _by_id(catalog: Catalog) -> dict[str, Topic]:
    return {topic.topic_id: topic for topic in catalog.list_topics()}


def _difference(before: dict[str, Topic], after: dict[str, Topic]) -> CatalogChange:
    return CatalogChange(
        created=tuple(topic for topic_id, topic in after.items() if topic_id not in before),
        altered=tuple(topic for topic_id, topic in after.items() if before.get(topic_id, topic) != topic),
        deleted=tuple(topic for topic_id, topic in before.items() if topic_id not in after),
    )
