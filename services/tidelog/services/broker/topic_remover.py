"""Removes the segments and manifests of deleted topics.

That a topic is to be removed stands in the journal until it is done, so a crash only delays it. Its records in the WAL
are passed over by the archiver and go with their entries.
"""

from __future__ import annotations

from tidelog.coordinator.catalog import Catalog
from tidelog.coordinator.topic import Topic
from tidelog.storage.layout import topic_prefix
from tidelog.storage.object_store import ObjectStore, list_all


class TopicRemover:
    """Raises `Unavailable`; running again is always right."""

    def __init__(self, store: ObjectStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    async def remove_deleted(self) -> None:
        """Remove all that is to be removed."""
        for topic in self._catalog.removals():
            await self._remove(topic)
            await self._catalog.removed(topic)

    async def _remove(self, topic: Topic) -> None:
        async for info in list_all(self._store, topic_prefix(topic.name, topic.topic_id)):
            await self._store.delete(info.key)
