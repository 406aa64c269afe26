"""Removes the segments and manifests of deleted topics, a grace after their deletion.

That a topic is to be removed stands in the journal until it is done, so a crash only delays it. The grace is for
queries that were planned over its segments; it is counted by this broker's monotonic clock from when it first saw the
removal, since no other clock is to be trusted with the deletion of data, so that a restart, or another leader, waits a
whole grace again. Records in the WAL are passed over by the archiver and go with their entries.

In a cluster the leader of the topic's first partition does it. A worker that was stalled for longer than the grace may
still write a segment or a manifest afterwards: an orphan, which nobody reads and the sweep removes, since a topic's id
is never used again; and nothing that is not the topic's is ever deleted.
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
"""What a call of `remove_deleted` deletes at most of a topic, so that archiving gets its turn."""
DELETES_AT_ONCE = 16


class TopicRemover:
    """Raises `Unavailable`; running again is always right."""

    def __init__(self, store: ObjectStore, catalog: Catalog, clock: Clock, grace_s: float) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._grace_s = grace_s
        self._seen_s: dict[str, float] = {}

    async def remove_deleted(self, leads: Callable[[int], bool]) -> bool:
        """Remove some of what is to be removed, of those topics whose first partition's shard is led here. Returns
        whether there is more at once."""
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
        """Whether nothing is left."""
        turns = asyncio.Semaphore(DELETES_AT_ONCE)

        async def delete(key: str) -> None:
            async with turns:
                await self._store.delete(key)

        page = await self._store.list(topic_prefix(topic.name, topic.topic_id), limit=OBJECTS_A_TURN)
        await asyncio.gather(*(delete(info.key) for info in page))
        return len(page) < OBJECTS_A_TURN
