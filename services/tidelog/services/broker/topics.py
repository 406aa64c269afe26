"""The topics as a broker knows them, and their changes through the journal, which any broker may make at any time.

Alone, a broker knows them all. In a cluster it may lag a moment behind the others, so before it says that there is no
such topic or partition it reads the journal on: one request to the store, shared by all who wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.coordinator.catalog import Catalog
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topic import Topic
from tidelog.services.broker.sharing import check_partition
from tidelog.services.broker.single_flight import SingleFlight
from tidelog.services.settings import Settings
from tidelog.storage.errors import NotFound


class Topics:
    """`shard_count`: how many shards new partitions are spread over. `forget` is told of every topic deleted, here or
    elsewhere. `lagging`: others may write the journal."""

    def __init__(self, journal: Journal, catalog: Catalog, settings: Settings, forget: Callable[[Topic], None]) -> None:
        self.shard_count = settings.shards
        self.lagging = False
        self._journal = journal
        self._catalog = catalog
        self._settings = settings
        self._forget = forget
        self._reading: SingleFlight[str, None] = SingleFlight()
        self._known: dict[str, Topic] = {}
        self._known_at = -1

    # ---- knowing

    def get(self, name: str) -> Topic:
        """From memory. Raises `NotFound`, `Invalid`."""
        return self._catalog.get(name)

    def all(self) -> Sequence[Topic]:
        """By name, from memory."""
        return self._catalog.list_topics()

    async def known(self, name: str, partition: int | None = None) -> Topic:
        """The topic, which has `partition` if that is given. Raises `NotFound`, `Invalid`, `Unavailable`."""
        try:
            return self._checked(name, partition)
        except NotFound:
            if not self.lagging:
                raise
        await self.refresh()
        return self._checked(name, partition)

    async def refresh(self) -> None:
        """Read the journal on. Raises `Unavailable`, `Corrupt`."""
        await self._reading.run("journal", self._journal.catch_up)
        self.settle()

    def settle(self) -> None:
        """Forget what is deleted as of the journal's present state."""
        if self._known_at == self._journal.next_number:
            return
        self._known_at = self._journal.next_number
        known = {topic.topic_id: topic for topic in self.all()}
        for topic_id in self._known.keys() - known.keys():
            self._forget(self._known[topic_id])
        self._known = known

    def _checked(self, name: str, partition: int | None) -> Topic:
        topic = self.get(name)
        if partition is not None:
            check_partition(topic, partition)
        return topic

    # ---- changing

    async def create(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `AlreadyExists`, `Invalid`, `Unavailable`."""
        count = self._settings.num_partitions if partitions is None else partitions
        topic = await self._catalog.create(name, count, configs, shard_count=self.shard_count)
        self.settle()
        return topic

    async def alter(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `NotFound`, `Invalid`, `Unavailable`."""
        await self.known(name)
        return await self._catalog.alter(name, partitions, configs, shard_count=self.shard_count)

    async def delete(self, name: str) -> None:
        """Raises `NotFound`, `Invalid`, `Unavailable`."""
        await self.known(name)
        topic = await self._catalog.delete(name)
        self._forget(topic)
        self.settle()
