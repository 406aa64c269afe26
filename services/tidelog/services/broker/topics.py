"""The topics that a broker knows, and their changes through the journal, which every broker may append to.

A broker alone knows all topics. In a cluster it may lag behind the others, so it reads the journal to its end before it
reports that a topic or partition does not exist, and before every change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import Topic
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import NotFound, TidelogError


class Topics:
    """`shard_count`: new partitions are spread over so many shards. `forget` is called for every topic deleted here.
    `catch_up`, set in a cluster, reads what other brokers have written; it raises `Unavailable`, `Corrupt`."""

    def __init__(self, catalog: Catalog, settings: Settings, forget: Callable[[Topic], None]) -> None:
        self.shard_count = settings.shards
        self.catch_up: Callable[[], Awaitable[None]] | None = None
        self._catalog = catalog
        self._settings = settings
        self._forget = forget

    def get(self, name: str) -> Topic:
        """From memory. Raises `NotFound`, `Invalid`."""
        return self._catalog.get(name)

    def all(self) -> Sequence[Topic]:
        """By name, from memory."""
        return self._catalog.list_topics()

    @property
    def revision(self) -> int:
        """Changes whenever a topic changes."""
        return self._catalog.revision

    async def known(self, name: str, partition: int | None = None) -> Topic:
        """The topic; `partition`, if given, exists. Raises `NotFound`, `Invalid`, `Unavailable`."""
        try:
            return self._checked(name, partition)
        except NotFound:
            if self.catch_up is None:
                raise
        await self.catch_up()
        return self._checked(name, partition)

    async def known_all(self, wanted: Sequence[tuple[str, int]]) -> Sequence[Topic | TidelogError]:
        """Like `known` for each topic and partition, or its error. Reads the journal once at most."""
        found = [self._found(name, partition) for name, partition in wanted]
        if self.catch_up is None or not any(isinstance(each, NotFound) for each in found):
            return found
        try:
            await self.catch_up()
        except TidelogError as error:
            return [error if isinstance(each, NotFound) else each for each in found]
        return [self._found(name, partition) for name, partition in wanted]

    def _found(self, name: str, partition: int) -> Topic | TidelogError:
        try:
            return self._checked(name, partition)
        except TidelogError as error:
            return error

    async def check_exists(self, topic: Topic) -> None:
        """Raises `NotFound` if any broker has deleted `topic`, and `Unavailable`."""
        await self._catch_up()
        if self.get(topic.name).topic_id != topic.topic_id:
            raise NotFound(f"topic {topic.name!r} was deleted, and a new one was created under its name")

    def _checked(self, name: str, partition: int | None) -> Topic:
        topic = self.get(name)
        if partition is not None:
            check_partition(topic, partition)
        return topic

    async def _catch_up(self) -> None:
        if self.catch_up is not None:
            await self.catch_up()

    async def create(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `AlreadyExists`, `Invalid`, `Unavailable`."""
        await self._catch_up()
        count = self._settings.num_partitions if partitions is None else partitions
        return await self._catalog.create(name, count, configs, shard_count=self.shard_count)

    async def alter(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `NotFound`, `Invalid`, `Unavailable`."""
        await self._catch_up()
        return await self._catalog.alter(name, partitions, configs, shard_count=self.shard_count)

    async def delete(self, name: str) -> None:
        """Raises `NotFound`, `Invalid`, `Unavailable`."""
        await self._catch_up()
        self._forget(await self._catalog.delete(name))


def check_partition(topic: Topic, partition: int) -> None:
    """Raises `NotFound` if the topic has no such partition."""
    if not 0 <= partition < topic.partition_count:
        raise NotFound(f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition}")
