"""Removes the segments and manifests of deleted topics.

That a topic is to be removed stands in the journal until it is done, so a crash only delays it. Its records in the WAL
are passed over by the archiver and go with their entries. In a cluster the leader of the topic's first partition does
it. A pass of another broker's archiver that began before the deletion may write a segment or a manifest after it: an
orphan, which nobody reads, since a topic's id is never used again; and nothing that is not the topic's is ever deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.coordinator.catalog import Catalog
from tidelog.coordinator.topic import Topic
from tidelog.storage.layout import topic_prefix
from tidelog.storage.object_store import ObjectStore, list_all


class TopicRemover:
    """Raises `Unavailable`; running again is always right."""

    def __init__(self, store: ObjectStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    async def remove_deleted(self, leads: Callable[[int], bool]) -> None:
        """Remove what is to be removed, of those topics whose first partition's shard is led here."""
        for topic in self._catalog.removals():
            if not leads(topic.shards[0]):
                continue
            await self._remove(topic)
            await self._catalog.removed(topic)

    async def _remove(self, topic: Topic) -> None:
        async for info in list_all(self._store, topic_prefix(topic.name, topic.topic_id)):
            await self._store.delete(info.key)
