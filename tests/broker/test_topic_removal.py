"""A deleted topic leaves the manifests of its shards; its objects stay for the grace, measured by a monotonic clock,
and then all of them are deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker
from tests.broker.drafts import draft, numbered, values_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.set_clock import GRACE_S, SetClock
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.archive.topic_remover import LOOK_EVERY_S
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.layout import MANIFESTS_PREFIX, topic_prefix
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)


async def objects_of(store: ObjectStore, topic: Topic) -> list[str]:
    """Its segments and its lists."""
    segments = [info.key async for info in list_all(store, topic_prefix(topic.name, topic.topic_id))]
    return segments + [info.key async for info in list_all(store, MANIFESTS_PREFIX) if topic.topic_id in info.key]


async def removed(broker: LocalBroker) -> None:
    """Take deleted topics out of the manifests, and delete the garbage that is ripe."""
    await broker.archive_now()
    await broker.upkeep_now()


async def test_the_objects_of_a_deleted_topic_go_after_the_grace_and_those_of_its_namesake_stay(
    bucket: Callable[[], ObjectStore],
) -> None:
    clock, looked = SetClock(), bucket()
    async with running_broker(bucket(), clock=clock) as broker:
        first = await broker.create_topic(ANYBODY, "t", 2, {})
        await broker.produce(ANYBODY, "t", draft([b"a", b"b"], partitions=[0, 1]), ProduceOptions())
        await broker.archive_now()
        await broker.delete_topic(ANYBODY, "t")
        second = await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", draft([b"c"]), TO_ZERO)
        await removed(broker)
        clock.pass_time(GRACE_S - 60)
        await removed(broker)
        assert len(await objects_of(looked, first)) == 2, "a query planned before the deletion still finds them"
        clock.pass_time(60)
        await removed(broker)
        assert await objects_of(looked, first) == []
        assert len(await objects_of(looked, second)) == 1
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"c"]
    await looked.aclose()


async def test_a_wrong_wall_clock_removes_no_topic_early() -> None:
    store, clock = MemoryObjectStore(), SetClock()
    async with running_broker(store, clock=clock) as broker:
        topic = await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        await broker.archive_now()
        await broker.delete_topic(ANYBODY, "t")
        await removed(broker)
        clock.wall_ahead_ms = 10 * 86_400_000
        await removed(broker)
        assert len(await objects_of(store, topic)) == 1


async def test_one_version_of_each_shard_drops_a_topic_however_many_partitions_it_has() -> None:
    store, clock = MemoryObjectStore(), SetClock()
    async with running_broker(store, clock=clock) as broker:
        topic = await broker.create_topic(ANYBODY, "t", 300, {})
        for _ in range(3):
            await broker.produce(ANYBODY, "t", draft([b"v"] * 300, partitions=list(range(300))), ProduceOptions())
            await broker.archive_now()
        assert len(await objects_of(store, topic)) >= 6
        before = [(await ShardLog(store, shard, Runtime()).latest()).version for shard in range(2)]
        await broker.delete_topic(ANYBODY, "t")
        await broker.archive_now()
        after = [await ShardLog(store, shard, Runtime()).latest() for shard in range(2)]
        assert [manifest.version - version for manifest, version in zip(after, before, strict=True)] == [1, 1]
        assert [manifest.topics for manifest in after] == [{}, {}]
        clock.pass_time(GRACE_S)
        await removed(broker)
        assert await objects_of(store, topic) == []


async def test_a_removal_is_over_once_no_shard_has_the_topic() -> None:
    gated, clock = GatedObjectStore(MemoryObjectStore()), SetClock()
    async with running_broker(gated, clock=clock) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        await broker.produce(ANYBODY, "t", draft([b"a", b"b"], partitions=[0, 1]), ProduceOptions())
        await broker.archive_now()
        catalog = broker.known_topics._catalog  # the removals have no other reader
        await broker.delete_topic(ANYBODY, "t")
        assert len(catalog.removals()) == 1
        await removed(broker)
        clock.pass_time(LOOK_EVERY_S)
        await removed(broker)
        assert catalog.removals() == ()


async def test_a_pass_that_was_under_way_when_its_topic_was_deleted_leaves_nothing() -> None:
    gated, clock = GatedObjectStore(MemoryObjectStore()), SetClock()
    async with running_broker(gated, shards=1, archiver_interval_ms=10, clock=clock) as broker:
        topic = await broker.create_topic(ANYBODY, "t", 1, {})
        gated.hold(MANIFESTS_PREFIX)
        await broker.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        await gated.arrived.wait()
        await broker.delete_topic(ANYBODY, "t")
        gated.gate.set()
        await removed(broker)
        assert (await ShardLog(gated, 0, Runtime()).latest()).topics == {}
        clock.pass_time(GRACE_S)
        await removed(broker)
        assert await objects_of(gated, topic) == []


async def test_a_removal_that_a_crash_cut_short_is_finished_by_the_next_broker() -> None:
    inner = MemoryObjectStore()
    outage = FaultyObjectStore(inner, FaultPlan(), Runtime())
    dying = open_broker(replace(SETTINGS, shutdown_timeout_ms=50), Runtime(), store=outage)
    await dying.start()
    topic = await dying.create_topic(ANYBODY, "t", 1, {})
    await dying.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
    await dying.archive_now()
    await dying.delete_topic(ANYBODY, "t")
    outage.plan = FaultPlan(unavailable=1.0)
    await dying.aclose()
    clock = SetClock()
    async with running_broker(inner, clock=clock) as broker:
        await removed(broker)
        assert len(await objects_of(inner, topic)) == 1, "the grace counts from when this broker saw the deletion"
        clock.pass_time(GRACE_S)
        await removed(broker)
        assert await objects_of(inner, topic) == []
