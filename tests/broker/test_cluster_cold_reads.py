"""Any broker reads cold records from the bucket itself, whether or not the leader is up."""

import asyncio
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.cluster_world import CLUSTER, running_world
from tests.broker.drafts import numbered, offsets_of, values_of
from tests.coordinator.stepped_clock import SteppedClock

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.cluster import cold_reader
from tidelog.services.broker.cluster.cold_reader import FRESH_S_MAX, FRESH_S_MIN, ColdReader
from tidelog.services.broker.shard.leadership_proof import READERS_TRUST_S
from tidelog.services.runtime.wiring import broker_parts
from tidelog.storage.errors import LeaderUnknown, NotFound, RecordsLost
from tidelog.storage.object_store import list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore, Usage
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
NAMES = ("a", "b")
HASTY = replace(CLUSTER, forward_timeout_ms=50)


async def test_cold_records_are_read_without_the_leader_and_hot_ones_wait_for_it() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), shards=1, settings=HASTY) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 30), TO_ZERO)
        await a.archive_now()
        await a.produce(ANYBODY, "t", numbered(30, 5), TO_ZERO)
        await world.kill("a")
        fetched = await b.fetch(ANYBODY, "t", 0, 10, FetchLimits(1_000, 1 << 20))
        assert values_of(fetched) == [b"%d" % n for n in range(10, 30)]
        assert (fetched.next_offset, fetched.log_start_offset, fetched.high_watermark) == (30, 0, 30)
        with pytest.raises(LeaderUnknown):
            await b.fetch(ANYBODY, "t", 0, 30, ALL)
        await world.usurp(0, "b")
        assert values_of(await b.fetch(ANYBODY, "t", 0, 30, ALL)) == [b"%d" % n for n in range(30, 35)]


async def test_a_route_of_cold_records_leads_nowhere_else() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 10), TO_ZERO)
        await a.archive_now()
        await a.produce(ANYBODY, "t", numbered(10, 1), TO_ZERO)
        assert (await b.route_fetch(ANYBODY, "t", 0, 9)).local
        hot = await b.route_fetch(ANYBODY, "t", 0, 10)
        assert (hot.local, hot.leader and hot.leader.broker_id) == (False, "a")
        assert not b.route(ANYBODY, "t", 0).local


async def test_a_reader_of_a_backlog_asks_for_its_manifest_once() -> None:
    inner = MemoryObjectStore()
    counting = CountingObjectStore(inner)
    async with running_world({"a": inner, "b": counting}, shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        for turn in range(5):
            await a.produce(ANYBODY, "t", numbered(20 * turn, 20), TO_ZERO)
            await a.archive_now()
        await b.known_topic(ANYBODY, "t")
        before, read = counting.usage(), 0
        while read < 100:
            pages = [b.fetch(ANYBODY, "t", 0, read, FetchLimits(7, 1 << 20)) for _ in range(4)]
            for fetched in await asyncio.gather(*pages):
                assert offsets_of(fetched) == list(range(read, read + len(offsets_of(fetched))))
            read = fetched.next_offset
        spent = counting.usage() - before
        assert spent.requests(Verb.LIST) == 1
        assert b.measurements().cluster.forwarded == 0


async def test_the_leader_answers_for_records_archived_since_the_manifest_was_read() -> None:
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 10), TO_ZERO)
        await a.archive_now()
        assert len(offsets_of(await b.fetch(ANYBODY, "t", 0, 0, ALL))) == 10
        await a.produce(ANYBODY, "t", numbered(10, 10), TO_ZERO)
        await a.archive_now()
        fetched = await b.fetch(ANYBODY, "t", 0, 10, ALL)
        assert (len(offsets_of(fetched)), fetched.high_watermark) == (10, 20)
        assert b.measurements().cluster.forwarded == 1


async def test_a_reader_at_the_end_of_the_log_asks_for_its_manifest_ever_more_seldom() -> None:
    store, clock = MemoryObjectStore(), SteppedClock()
    counting = CountingObjectStore(store)
    async with running_world(dict.fromkeys(NAMES, store), shards=1) as world:
        a = world.brokers["a"]
        topic = await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 10), TO_ZERO)
        await a.archive_now()
        cold = ColdReader(counting, broker_parts(CLUSTER, Runtime(), counting).reader, Runtime(clock))

        async def asked(seconds: int, *, leader_known: bool) -> int:
            before = counting.usage()
            for _ in range(seconds):
                assert not await cold.holds(topic, 0, 10, leader_known=leader_known)
                clock.advance(1)
            return (counting.usage() - before).requests()

        assert await asked(3_600, leader_known=True) <= 3_600 / FRESH_S_MAX + 10
        assert 60 / FRESH_S_MIN <= await asked(60, leader_known=False) <= 60 / FRESH_S_MIN + 1
        await a.produce(ANYBODY, "t", numbered(10, 1), TO_ZERO)
        await a.archive_now()
        clock.advance(FRESH_S_MAX)
        assert await cold.holds(topic, 0, 10, leader_known=True)


async def test_all_partitions_of_a_shard_are_read_by_one_manifest_that_one_request_renews() -> None:
    store, clock = MemoryObjectStore(), SteppedClock()
    counting = CountingObjectStore(store)
    async with running_world(dict.fromkeys(NAMES, store), shards=1) as world:
        a = world.brokers["a"]
        topic = await a.create_topic(ANYBODY, "t", 50, {})
        for number in range(50):
            await a.produce(ANYBODY, "t", numbered(0, 10), ProduceOptions(partition=number))
        await a.archive_now()
        cold = ColdReader(counting, broker_parts(CLUSTER, Runtime(), counting).reader, Runtime(clock))

        async def spent_on_all() -> Usage:
            before = counting.usage()
            looks = (cold.fetch(topic, number, 0, ALL, leader_known=True) for number in range(50))
            assert all(one and len(offsets_of(one)) == 10 for one in await asyncio.gather(*looks))
            return counting.usage() - before

        first = await spent_on_all()
        assert (first.requests(Verb.LIST), first.requests(Verb.GET), first.requests()) == (1, 2, 3)
        clock.advance(READERS_TRUST_S + 0.1)
        later = await spent_on_all()
        assert (later.requests(Verb.HEAD), later.requests()) == (1, 1)


async def test_manifests_are_cached_within_a_bound_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of two shards' manifests fits; both are read."""
    monkeypatch.setattr(cold_reader, "MANIFESTS_BYTES", 3_000)
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys(NAMES, store), shards=2) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        topic = await a.create_topic(ANYBODY, "t", 8, {})
        for number in range(8):
            await a.produce(ANYBODY, "t", numbered(0, 10), ProduceOptions(partition=number))
        await asyncio.gather(a.archive_now(), b.archive_now())
        cold = ColdReader(store, broker_parts(CLUSTER, Runtime(), store).reader, Runtime())
        for _ in range(2):
            looks = [await cold.fetch(topic, number, 0, ALL, leader_known=True) for number in range(8)]
            assert sum(len(offsets_of(one)) for one in looks if one) == 80
        assert len({topic.shards[number] for number in range(8)}) == 2
        assert sum(cold.knows(topic, number, 0) for number in range(8)) == topic.shards.count(topic.shards[7])


async def test_a_topic_that_was_deleted_elsewhere_is_not_reported_as_damaged() -> None:
    """`b` did not learn of the deletion, like a broker that is cut off from etcd. The topic's objects are already
    deleted."""
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys(NAMES, store), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 10), TO_ZERO)
        await a.archive_now()
        assert (await b.route_fetch(ANYBODY, "t", 0, 0)).local, "it knows the manifest"
        segments = [info async for info in list_all(store, "topics/") if info.key.endswith(".parquet")]
        await world.coordinations["b"]._sync.aclose()
        for info in segments:
            await store.delete(info.key)
        with pytest.raises(RecordsLost):
            await b.fetch(ANYBODY, "t", 0, 5, FetchLimits(1, 1))
        await a.delete_topic(ANYBODY, "t")
        assert b.topic(ANYBODY, "t"), "it has not heard of that"
        with pytest.raises(NotFound):
            await b.fetch(ANYBODY, "t", 0, 5, FetchLimits(1, 1))
