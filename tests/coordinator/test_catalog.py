import asyncio

import pytest

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import PARTITIONS_MAX, SEGMENT_BYTES_MAX, TopicLimits, upkeep_rules
from tidelog.storage.errors import AlreadyExists, Invalid, NotFound
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore


async def opened(store: ObjectStore, seed: int = 1, limits: TopicLimits | None = None) -> Catalog:
    runtime = Runtime(entropy=SeededEntropy(seed))
    journal = Journal(store, runtime)
    await journal.open()
    return Catalog(journal, runtime, limits=limits)


async def test_a_topic_outlives_the_process() -> None:
    store = MemoryObjectStore()
    created = await (await opened(store)).create("web", 3, {"retention.ms": 1000}, shard_count=2)
    assert (await opened(store, 2)).get("web") == created
    assert created.config.retention_ms == 1000
    assert sorted(created.shards) == [0, 0, 1]


async def test_a_topic_that_exists_cannot_be_created() -> None:
    catalog = await opened(MemoryObjectStore())
    await catalog.create("web", 1, {}, shard_count=1)
    with pytest.raises(AlreadyExists):
        await catalog.create("web", 1, {}, shard_count=1)


async def test_of_two_brokers_that_create_a_topic_one_wins() -> None:
    store = MemoryObjectStore()
    catalogs = [await opened(store, seed) for seed in range(2)]
    results = await asyncio.gather(
        *(catalog.create("web", 1, {}, shard_count=1) for catalog in catalogs), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["AlreadyExists", "Topic"]


async def test_altering_changes_what_is_named_and_puts_defaults_back() -> None:
    catalog = await opened(MemoryObjectStore())
    await catalog.create("web", 1, {"retention.ms": 5, "segment.bytes": 2_000_000}, shard_count=1)
    altered = await catalog.alter("web", None, {"retention.ms": None}, shard_count=1)
    assert (altered.config.retention_ms, altered.config.segment_bytes) == (604_800_000, 2_000_000)


@pytest.mark.parametrize("size_bytes", [SEGMENT_BYTES_MAX + 1, (1 << 20) - 1])
async def test_a_segment_that_some_store_would_refuse_cannot_be_asked_for(size_bytes: int) -> None:
    catalog = await opened(MemoryObjectStore())
    with pytest.raises(Invalid, match=r"segment\.bytes is a number from 1048576 to 1073741824"):
        await catalog.create("web", 1, {"segment.bytes": size_bytes}, shard_count=1)


async def test_the_delay_of_deletions_reaches_the_upkeep_of_the_topic() -> None:
    catalog = await opened(MemoryObjectStore())
    plain = await catalog.create("web", 1, {}, shard_count=1)
    quick = await catalog.create("shop", 1, {"file.delete.delay.ms": 60_000}, shard_count=1)
    assert [upkeep_rules(topic.config).grace_ms for topic in (plain, quick)] == [86_400_000, 60_000]
    with pytest.raises(Invalid, match=r"file\.delete\.delay\.ms"):
        await catalog.alter("shop", None, {"file.delete.delay.ms": -1}, shard_count=1)


async def test_partitions_are_added_where_the_shards_have_fewest_and_never_move() -> None:
    catalog = await opened(MemoryObjectStore())
    before = await catalog.create("web", 2, {}, shard_count=2)
    after = await catalog.alter("web", 5, {}, shard_count=4)
    assert after.shards[:2] == before.shards
    assert set(after.shards) == {0, 1, 2, 3}


@pytest.mark.parametrize("partitions", [0, -1, PARTITIONS_MAX + 1])
async def test_a_topic_has_at_least_one_partition_and_not_too_many(partitions: int) -> None:
    catalog = await opened(MemoryObjectStore())
    with pytest.raises(Invalid):
        await catalog.create("web", partitions, {}, shard_count=1)


async def test_topics_and_partitions_have_limits_that_a_refusal_names() -> None:
    catalog = await opened(MemoryObjectStore(), limits=TopicLimits(topics=2, topic_partitions=4, partitions=6))
    await catalog.create("web", 4, {}, shard_count=1)
    for partitions, name in ((5, r"topic\.partitions\.max"), (3, r" partitions\.max")):
        with pytest.raises(Invalid, match=name):
            await catalog.create("shop", partitions, {}, shard_count=1)
    await catalog.create("shop", 2, {}, shard_count=1)
    with pytest.raises(Invalid, match=r"topics\.max"):
        await catalog.create("third", 1, {}, shard_count=1)
    with pytest.raises(Invalid, match=r" partitions\.max"):
        await catalog.alter("shop", 3, {}, shard_count=1)
    await catalog.delete("web")
    assert (await catalog.alter("shop", 4, {}, shard_count=1)).partition_count == 4
    with pytest.raises(Invalid, match=r"topic\.partitions\.max"):
        await catalog.alter("shop", 5, {}, shard_count=1)


async def test_topics_beyond_a_lowered_limit_stay_and_can_be_altered() -> None:
    store = MemoryObjectStore()
    before = await opened(store)
    await before.create("web", 4, {}, shard_count=1)
    await before.create("shop", 4, {}, shard_count=1)
    catalog = await opened(store, 2, limits=TopicLimits(topics=1, topic_partitions=2, partitions=2))
    assert (await catalog.alter("web", 4, {"retention.ms": 5}, shard_count=1)).config.retention_ms == 5
    with pytest.raises(Invalid):
        await catalog.alter("web", 5, {}, shard_count=1)


async def test_partitions_cannot_become_fewer() -> None:
    catalog = await opened(MemoryObjectStore())
    await catalog.create("web", 3, {}, shard_count=1)
    with pytest.raises(Invalid, match="fewer"):
        await catalog.alter("web", 2, {}, shard_count=1)


async def test_a_deleted_topic_is_gone_and_one_of_its_name_is_another() -> None:
    store = MemoryObjectStore()
    catalog = await opened(store)
    first = await catalog.create("web", 1, {}, shard_count=1)
    assert await catalog.delete("web") == first
    with pytest.raises(NotFound):
        catalog.get("web")
    second = await catalog.create("web", 1, {}, shard_count=1)
    assert second.topic_id != first.topic_id
    assert (await opened(store, 2)).list_topics() == (second,)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250])
async def test_a_name_that_no_topic_can_have_is_invalid_everywhere(name: str) -> None:
    catalog = await opened(MemoryObjectStore())
    with pytest.raises(Invalid):
        catalog.get(name)
    with pytest.raises(Invalid):
        await catalog.create(name, 1, {}, shard_count=1)


async def test_an_unknown_config_is_refused_with_the_known_and_nothing_is_written() -> None:
    catalog = await opened(MemoryObjectStore())
    with pytest.raises(Invalid, match=r"retention\.ms"):
        await catalog.create("web", 1, {"retention": 1}, shard_count=1)
    assert catalog.list_topics() == ()
