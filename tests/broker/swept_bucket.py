"""A bucket that a broker has filled, with added orphans and a store that has its own clock."""

from __future__ import annotations

from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import numbered, offsets_of
from tests.storage.archive_scenes import ManualClock, keys

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.bucket.sweep.bucket_sweep import DAY_MS
from tidelog.storage.layout import shard_segment_key, shard_segment_name, staging_prefix, topic_prefix
from tidelog.storage.stores.memory import MemoryObjectStore

DAY_S = DAY_MS / 1_000
RECORDS = 6
ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
STAGED = f"{staging_prefix('a-job-that-died')}task-0"


class SweptBucket:
    """`store` uses `clock`, which stands still unless the test moves it."""

    def __init__(self) -> None:
        self.clock = ManualClock(20_000_000.0)
        self.store = MemoryObjectStore(self.clock)
        self.orphans: list[str] = []

    async def fill(self) -> None:
        """Let a broker write and archive a topic with a segment in each of two shards, stop it, and add orphans."""
        async with running_broker(self.store, shards=2) as broker:
            topic = await broker.create_topic(ANYBODY, "t", 2, {})
            for partition in range(2):
                await broker.produce(ANYBODY, "t", numbered(0, RECORDS), ProduceOptions(partition=partition))
            await broker.archive_now()
            await self.plant(topic)

    async def plant(self, topic: Topic, segment_id: str = "cd") -> None:
        """Add uploads that no manifest names, one in each shard, and a staging area. They have archived records."""
        for key in await keys(self.store, topic_prefix(topic.name, topic.topic_id)):
            name = shard_segment_name(key)
            assert name is not None, key
            orphan = shard_segment_key(topic.name, topic.topic_id, name.shard, segment_id * 16)
            await self.store.create(orphan, (await self.store.get(key)).data)
            self.orphans.append(orphan)
        await self.store.put(STAGED, b"x" * 10)
        self.orphans.append(STAGED)

    def pass_a_day(self) -> None:
        self.clock.now_s += DAY_S

    async def left(self) -> list[str]:
        """Return the orphans that still exist."""
        present = set(await keys(self.store, ""))
        return [key for key in self.orphans if key in present]


async def check_records(broker: LocalBroker) -> None:
    """Check that all acknowledged records can be read."""
    for partition in range(2):
        assert offsets_of(await broker.fetch(ANYBODY, "t", partition, 0, ALL)) == list(range(RECORDS))
