"""Any broker takes any request; the leader answers it."""

import asyncio
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY, FORWARDED
from tests.broker.brokers import until
from tests.broker.cluster_world import CLUSTER, World, running_world
from tests.broker.drafts import draft, numbered, offsets_of, values_of
from tests.broker.logs import partition_log

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.storage.errors import LeaderUnknown, NotFound, NotLeader
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
NAMES = ("a", "b", "c")


def three(store: MemoryObjectStore) -> dict[str, MemoryObjectStore]:
    return dict.fromkeys(NAMES, store)


async def led_by(world: World, topic: str, name: str) -> int:
    """A partition of `topic` that `name` leads."""
    shards = (await world.brokers[name].known_topic(ANYBODY, topic)).shards
    return next(number for number, shard in enumerate(shards) if world.leaders[shard].broker_id == name)


async def test_every_broker_takes_produces_and_fetches_of_every_partition() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        for number in range(3):
            for index, name in enumerate(NAMES):
                (answer,) = await world.brokers[name].produce(
                    ANYBODY, "t", numbered(index, 1), ProduceOptions(partition=number)
                )
                assert answer.base_offset == index
        for name in NAMES:
            for number in range(3):
                assert values_of(await world.brokers[name].fetch(ANYBODY, "t", number, 0, ALL)) == [b"0", b"1", b"2"]
                assert await world.brokers[name].resolve(ANYBODY, "t", number, Position(Anchor.LATEST)) == 3
                log = await partition_log(world.brokers[name], "t", number)
                assert (log.partition, log.high_watermark) == (number, 3)


async def test_the_shares_of_one_request_go_to_their_leaders_and_its_answer_names_all() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["b"].create_topic(ANYBODY, "t", 6, {})
        sent = draft([b"%d" % n for n in range(12)], partitions=[n % 6 for n in range(12)])
        answers = await world.brokers["c"].produce(ANYBODY, "t", sent, ProduceOptions())
        assert [(a.partition, a.base_offset, a.count) for a in answers] == [(n, 0, 2) for n in range(6)]
        for number in range(6):
            assert values_of(await world.brokers["a"].fetch(ANYBODY, "t", number, 0, ALL)) == [
                b"%d" % number,
                b"%d" % (number + 6),
            ]
        assert world.brokers["c"].measurements().cluster.forwarded == 4


async def test_a_request_is_forwarded_at_most_once() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        there = await led_by(world, "t", "b")
        asked = world.brokers["a"]
        with pytest.raises(NotLeader) as refusal:
            await asked.produce(FORWARDED, "t", numbered(0, 1), ProduceOptions(partition=there))
        assert refusal.value.leader == "http://b"
        with pytest.raises(NotLeader):
            await asked.fetch(FORWARDED, "t", there, 0, ALL)
        with pytest.raises(NotLeader):
            await asked.resolve(FORWARDED, "t", there, Position(Anchor.LATEST))
        with pytest.raises(NotLeader):
            await partition_log(asked, "t", there, context=FORWARDED)
        assert world.brokers["b"].measurements().topics == {}


async def test_routes_say_where_a_partition_is_led() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        number = await led_by(world, "t", "b")
        shard = world.brokers["a"].topic(ANYBODY, "t").shards[number]
        assert world.brokers["b"].route(ANYBODY, "t", number).local
        route = world.brokers["a"].route(ANYBODY, "t", number)
        assert (route.local, route.leader and route.leader.address) == (False, "http://b")
        changed = asyncio.create_task(world.brokers["a"].routes_changed(60))
        assert await asyncio.wait((changed,), timeout=0.01) == (set(), {changed})
        await world.give(shard, "a")
        await changed
        assert world.brokers["a"].route(ANYBODY, "t", number).local
        await world.take(shard)
        assert world.brokers["a"].route(ANYBODY, "t", number).leader is None


async def test_a_request_for_a_shard_without_a_leader_waits_for_one() -> None:
    async with running_world(three(MemoryObjectStore()), shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        await world.take(0)
        produce = asyncio.create_task(world.brokers["b"].produce(ANYBODY, "t", numbered(0, 1), TO_ZERO))
        fetch = asyncio.create_task(world.brokers["c"].resolve(ANYBODY, "t", 0, Position(Anchor.EARLIEST)))
        assert await asyncio.wait((produce, fetch), timeout=0.05) == (set(), {produce, fetch})
        await world.usurp(0, "c")
        assert ((await produce)[0].base_offset, await fetch) == (0, 0)


async def test_a_request_that_finds_no_leader_in_time_is_refused_and_nothing_is_taken() -> None:
    store = MemoryObjectStore()
    async with running_world(three(store), shards=1, settings=replace(CLUSTER, forward_timeout_ms=50)) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        await world.take(0)
        with pytest.raises(LeaderUnknown):
            await world.brokers["b"].produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
        with pytest.raises(LeaderUnknown):
            await world.brokers["b"].fetch(ANYBODY, "t", 0, 0, ALL)
        await world.usurp(0, "a")
        assert offsets_of(await world.brokers["b"].fetch(ANYBODY, "t", 0, 0, ALL)) == []


async def test_a_long_poll_continues_at_the_next_leader() -> None:
    async with running_world(three(MemoryObjectStore()), shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        polls = [
            asyncio.create_task(world.brokers[name].fetch(ANYBODY, "t", 0, 0, FetchLimits(10, 1 << 20, 60_000)))
            for name in NAMES
        ]
        await until(lambda: world.brokers["a"].measurements().waiting_fetches == 3)
        await world.give(0, "b")
        await until(lambda: world.brokers["b"].measurements().waiting_fetches == 3)
        await world.brokers["c"].produce(ANYBODY, "t", numbered(7, 1), TO_ZERO)
        for poll in polls:
            assert values_of(await poll) == [b"7"]


async def test_a_topic_is_known_everywhere_once_it_was_created_anywhere() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        a, b, c = (world.brokers[name] for name in NAMES)
        for turn in range(5):
            name = f"t{turn}"
            await a.create_topic(ANYBODY, name, 2, {})
            await b.produce(ANYBODY, name, numbered(0, 1), TO_ZERO)
            assert values_of(await c.fetch(ANYBODY, name, 0, 0, ALL)) == [b"0"]
            assert (await c.known_topic(ANYBODY, name)).partition_count == 2
            await b.alter_topic(ANYBODY, name, 4, {})
            await c.produce(ANYBODY, name, numbered(1, 1), ProduceOptions(partition=3))
        with pytest.raises(NotFound):
            await c.fetch(ANYBODY, "nowhere", 0, 0, ALL)
        with pytest.raises(NotFound):
            await c.fetch(ANYBODY, "t0", 4, 0, ALL)


async def test_a_topic_is_created_by_the_first_record_wherever_that_comes() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        answers = await asyncio.gather(
            *(world.brokers[name].produce(ANYBODY, "auto", numbered(0, 1), ProduceOptions()) for name in NAMES * 3)
        )
        assert sorted(a.base_offset for (a,) in answers if a.base_offset is not None) == list(range(9))


async def test_changes_of_a_topic_through_ever_another_broker_rest_on_each_other() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        a, b, c = (world.brokers[name] for name in NAMES)
        for _ in range(10):
            await a.create_topic(ANYBODY, "t", 1, {})
            assert (await b.alter_topic(ANYBODY, "t", 2, {})).partition_count == 2
            await c.delete_topic(ANYBODY, "t")
        with pytest.raises(NotFound):
            await b.delete_topic(ANYBODY, "t")


async def test_a_deleted_topic_is_gone_everywhere_and_its_name_begins_again() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        a, b, c = (world.brokers[name] for name in NAMES)
        before = await a.create_topic(ANYBODY, "t", 3, {})
        for number in range(3):
            await b.produce(ANYBODY, "t", numbered(0, 4), ProduceOptions(partition=number))
        poll = asyncio.create_task(b.fetch(ANYBODY, "t", 1, 4, FetchLimits(1, 1, 60_000)))
        await until(lambda: sum(world.brokers[name].measurements().waiting_fetches for name in NAMES) == 1)
        await c.delete_topic(ANYBODY, "t")
        with pytest.raises(NotFound):
            await poll
        await until(lambda: not any(world.brokers[name].topics(ANYBODY) for name in NAMES))
        after = await b.create_topic(ANYBODY, "t", 3, {})
        assert after.topic_id != before.topic_id
        (answer,) = await a.produce(ANYBODY, "t", numbered(9, 1), TO_ZERO)
        assert answer.base_offset == 0
        assert values_of(await c.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"9"]
