"""Two brokers on one bucket and one key-value store learn of each other's topics."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.stepped_clock import SteppedClock

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import KeyValue
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.catalog_sync import POLL_S, READ_ANYHOW_S, CatalogChange, CatalogSync
from tidelog.storage.errors import NotFound, Unavailable
from tidelog.storage.object_store import ByteRange, StoredObject
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

KEYS = ClusterKeys("main")


class CutStore(EmbeddedKeyValueStore):
    """Does not answer a `get` while `cut`."""

    cut = False

    async def get(self, key: str) -> KeyValue | None:
        if self.cut:
            raise Unavailable("cut off")
        return await super().get(key)


class Broker:
    """The parts of a broker that know topics."""

    def __init__(self, bucket: MemoryObjectStore, kv: EmbeddedKeyValueStore, clock: SteppedClock, seed: int) -> None:
        runtime = Runtime(clock, SeededEntropy(seed))
        self.requests = CountingObjectStore(bucket)
        self.journal = Journal(self.requests, runtime)
        self.catalog = Catalog(self.journal, runtime)
        self.sync = CatalogSync(self.journal, self.catalog, kv, KEYS, runtime)
        self.heard: asyncio.Queue[CatalogChange] = asyncio.Queue()
        self.sync.on_change(self.heard.put_nowait)

    async def start(self) -> None:
        await self.journal.open()
        await self.sync.start()

    async def hears(self) -> CatalogChange:
        async with asyncio.timeout(5):
            return await self.heard.get()


class Cluster:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.kv = CutStore(Runtime(self.clock, SeededEntropy(0)))
        bucket = MemoryObjectStore()
        self.one, self.other = (Broker(bucket, self.kv, self.clock, seed) for seed in (1, 2))

    async def published(self) -> bytes | None:
        found = await self.kv.get(KEYS.journal)
        return found.value if found else None


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    await cluster.one.start()
    await cluster.other.start()
    yield cluster
    await cluster.one.sync.aclose()
    await cluster.other.sync.aclose()
    await cluster.kv.aclose()


async def test_a_topic_made_altered_and_deleted_elsewhere_is_heard_of_without_a_wait(cluster: Cluster) -> None:
    one, other = cluster.one, cluster.other
    topic = await one.catalog.create("web", 2, {}, shard_count=4)
    assert await other.hears() == await one.hears() == CatalogChange((topic,), (), ())
    grown = await one.catalog.alter("web", 3, {}, shard_count=4)
    assert (await other.hears()).altered == (grown,)
    await one.catalog.delete("web")
    assert (await other.hears()).deleted == (grown,)
    with pytest.raises(NotFound):
        other.catalog.get("web")


async def test_a_topic_deleted_and_created_again_is_reported_as_both(cluster: Cluster) -> None:
    first = await cluster.one.catalog.create("web", 1, {}, shard_count=4)
    await cluster.other.hears()
    cluster.kv.cut = True
    await cluster.other.catalog.delete("web")
    second = await cluster.other.catalog.create("web", 1, {}, shard_count=4)
    await cluster.one.sync.refresh()
    told = [await cluster.one.hears() for _ in range(3)]
    assert [(change.created, change.deleted) for change in told] == [((first,), ()), ((), (first,)), ((second,), ())]


async def test_without_the_key_value_store_the_journal_is_polled(cluster: Cluster) -> None:
    cluster.kv.cut = True
    topic = await cluster.one.catalog.create("web", 1, {}, shard_count=4)
    await cluster.clock.run(2 * POLL_S)
    assert (await cluster.other.hears()).created == (topic,)


async def test_the_number_is_published_once_the_key_value_store_answers_again(cluster: Cluster) -> None:
    cluster.kv.cut = True
    await cluster.one.catalog.create("web", 1, {}, shard_count=4)
    await cluster.clock.run(1)
    cluster.kv.cut = False
    await cluster.clock.run(POLL_S)
    assert await cluster.published() == b"1"


async def test_an_entry_whose_writer_died_before_it_signalled_is_found_in_time(cluster: Cluster) -> None:
    await cluster.one.sync.aclose()
    topic = await cluster.one.catalog.create("web", 1, {}, shard_count=4)
    await cluster.clock.run(READ_ANYHOW_S + 2 * POLL_S)
    assert (await cluster.other.hears()).created == (topic,)


async def test_while_nothing_changes_and_the_store_answers_the_bucket_is_left_alone(cluster: Cluster) -> None:
    before = cluster.other.requests.usage()
    await cluster.clock.run(READ_ANYHOW_S - 2 * POLL_S)
    assert (cluster.other.requests.usage() - before).requests(Verb.GET) == 0


async def test_the_number_is_never_lowered(cluster: Cluster) -> None:
    await cluster.kv.put(KEYS.journal, b"7")
    await cluster.one.catalog.create("web", 1, {}, shard_count=4)
    await cluster.one.catalog.create("shop", 1, {}, shard_count=4)
    await cluster.clock.run(POLL_S)
    assert await cluster.published() == b"7"


async def test_simultaneous_refreshes_share_a_request_and_see_earlier_entries(cluster: Cluster) -> None:
    await cluster.one.sync.aclose()
    await cluster.one.catalog.create("web", 1, {}, shard_count=4)
    before = cluster.other.requests.usage()
    await asyncio.gather(*(cluster.other.sync.refresh() for _ in range(20)))
    assert cluster.other.catalog.get("web").partition_count == 1
    assert (cluster.other.requests.usage() - before).requests(Verb.GET) == 2  # the entry, and that there is no other


class StuckBucket(MemoryObjectStore):
    """A bucket whose reads hang."""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        await asyncio.Event().wait()
        return await super().get(key, byte_range)


async def test_a_refresh_while_the_broker_stops_fails_and_says_so() -> None:
    clock = SteppedClock()
    kv = EmbeddedKeyValueStore(Runtime(clock, SeededEntropy(0)))
    broker = Broker(StuckBucket(), kv, clock, 1)
    await broker.start()
    refreshing = asyncio.create_task(broker.sync.refresh())
    await clock.run(1)
    await broker.sync.aclose()
    with pytest.raises(Unavailable, match="stopping"):
        await refreshing
    await kv.aclose()
