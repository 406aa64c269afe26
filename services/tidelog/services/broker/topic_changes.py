"""Topics created, altered and deleted through the journal, by any broker at any time."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.catalog import Catalog
from tidelog.coordinator.topic import Topic
from tidelog.services.broker.shard_set import ShardSet
from tidelog.services.settings import Settings


class TopicChanges:
    """`shard_count`: how many shards new partitions are spread over."""

    def __init__(self, catalog: Catalog, shards: ShardSet, settings: Settings) -> None:
        self.shard_count = settings.shards
        self._catalog = catalog
        self._shards = shards
        self._settings = settings

    async def create(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `AlreadyExists`, `Invalid`, `Unavailable`."""
        led_before = self._shards.led_shards()
        count = self._settings.num_partitions if partitions is None else partitions
        topic = await self._catalog.create(name, count, configs, shard_count=self.shard_count)
        # Only a leader of before the topic's birth knows that no partition of it has a manifest: since then another
        # may have led the shard, taken records and archived them.
        led_since = [led for led in self._shards.led_shards() if led in led_before and led.serving]
        for led in led_since:
            if led.shard in topic.shards:
                led.leader.partitions.born(topic)
        return topic

    async def alter(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `NotFound`, `Invalid`, `Unavailable`."""
        return await self._catalog.alter(name, partitions, configs, shard_count=self.shard_count)

    async def delete(self, name: str) -> Topic:
        """The topic that was. Raises `NotFound`, `Invalid`, `Unavailable`."""
        return await self._catalog.delete(name)
