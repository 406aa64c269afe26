"""Finds the topics that a request names, by name or by id."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.storage.errors import NotFound
from tidelog.wire.groups import TopicPartitions


def topic_uuid(topic: Topic) -> UUID:
    return UUID(topic.topic_id)


class TopicLookup:
    """The topics of one request. In a cluster the journal is read at most once, however many names are unknown."""

    def __init__(self, broker: Broker, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._is_current = False
        self._by_id: dict[UUID, Topic] | None = None

    async def by_name(self, name: str) -> Topic:
        """Raises `NotFound`, `Invalid`, `Unavailable`."""
        try:
            return self._broker.topic(self._context, name)
        except NotFound:
            if self._is_current:
                raise
        self._is_current = True
        return await self._broker.known_topic(self._context, name)

    async def ids(self, named: Iterable[TopicPartitions]) -> list[tuple[UUID, TopicPartitions]]:
        """Each with the id of its topic. Those of topics that were deleted are left out."""
        found = []
        for each in named:
            with suppress(NotFound):
                found.append((topic_uuid(await self.by_name(each.topic)), each))
        return found

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        if self._by_id is None:
            self._by_id = {topic_uuid(topic): topic for topic in self._broker.topics(self._context)}
        return self._by_id.get(topic_id) if topic_id else None
