"""Topic metadata from the journal, for bucket-wide tools (`storage.known_topics`: verify, sweep, copy, repair).

A topic that is missing from the journal is not proved to be deleted: the journal may have lost its newest entries. The
proof is the entry that deleted it. Entries are never deleted, so all of them are searched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.coordinator.journal import JOURNAL_SUFFIX, Journal, Put, decode_entry
from tidelog.coordinator.topics.catalog import REMOVALS_PREFIX, Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.storage.bucket.known_topics import KnownTopic
from tidelog.storage.errors import NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import META_PREFIX
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime

AT_ONCE = 32


class JournalTopics:
    """Implements `TopicKnowledge` for the bucket `store`. It only reads."""

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._log = ObjectLog(store, META_PREFIX, JOURNAL_SUFFIX)
        self._journal = Journal(store, runtime)
        self._catalog = Catalog(self._journal, runtime)
        self._opened = False
        self._searched = 0
        self._deleted: set[str] = set()

    async def topics(self) -> Mapping[str, KnownTopic]:
        if self._opened:
            await self._journal.catch_up()
        else:
            await self._journal.open()
            self._opened = True
        live = {topic.topic_id: _known(topic, removing=False) for topic in self._catalog.list_topics()}
        return {topic.topic_id: _known(topic, removing=True) for topic in self._catalog.removals()} | live

    async def deleted(self, topic_ids: Collection[str]) -> Collection[str]:
        if not self._deleted.issuperset(topic_ids):
            await self._search()
        return self._deleted.intersection(topic_ids)

    async def _search(self) -> None:
        async for number, removed in in_order(self._log.numbers(self._searched), self._removed_by, at_once=AT_ONCE):
            self._deleted |= removed
            self._searched = number + 1

    async def _removed_by(self, number: int) -> set[str]:
        """The ids of the topics that the entry deletes."""
        try:
            entry = decode_entry(self._log.key(number), (await self._log.read(number)).data)
        except NotFound:
            return set()
        keys = [change.key for change in entry.changes if isinstance(change, Put)]
        return {key.removeprefix(REMOVALS_PREFIX) for key in keys if key.startswith(REMOVALS_PREFIX)}


def _known(topic: Topic, *, removing: bool) -> KnownTopic:
    return KnownTopic(topic.name, topic.topic_id, topic.shards, removing)
