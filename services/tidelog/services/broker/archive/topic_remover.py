"""Deletes the segments and manifests of deleted topics, a grace after their deletion.

A removal stays in the journal until it is done, so a crash only delays it. The grace protects queries that were planned
on the segments. It counts on this broker's monotonic clock from when the broker first saw the removal, because no other
clock may decide over the deletion of data; a restart or another leader begins a new grace. The archiver skips the
topic's records in the WAL, and they are deleted with their entries.

In a cluster the leader of the topic's first partition does this. A worker that stalled for longer than the grace may
still write a segment or manifest: an orphan, which the sweep deletes, because topic ids are never reused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.layout import topic_prefix
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock

OBJECTS_A_TURN = 256
"""Objects of a topic that one call of `remove_deleted` deletes at most, so that archiving is not delayed."""
DELETES_AT_ONCE = 16


class TopicRemover:
    """Raises `Unavailable`. Repeating a call is always safe."""

    def __init__(self, store: ObjectStore, catalog: Catalog, clock: Clock, grace_s: float) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._grace_s = grace_s
        self._seen_s: dict[str, float] = {}

    async def remove_deleted(self, leads: Callable[[int], bool]) -> bool:
        """Delete some objects of deleted topics whose first partition is led here. Returns whether more can be deleted
        immediately."""
        removals = [topic for topic in self._catalog.removals() if leads(topic.shards[0])]
        now_s = self._clock.monotonic()
        self._seen_s = {topic.topic_id: self._seen_s.get(topic.topic_id, now_s) for topic in removals}
        for topic in removals:
            if now_s - self._seen_s[topic.topic_id] >= self._grace_s:
                if not await self._remove_some(topic):
                    return True
                await self._catalog.removed(topic)
        return False

    async def _remove_some(self, topic: Topic) -> bool:
        """Returns whether no object is left."""
        turns = asyncio.Semaphore(DELETES_AT_ONCE)

        async def delete(key: str) -> None:
            async with turns:
                await self._store.delete(key)

        page = await self._store.list(topic_prefix(topic.name, topic.topic_id), limit=OBJECTS_A_TURN)
        await asyncio.gather(*(delete(info.key) for info in page))
        return len(page) < OBJECTS_A_TURN
