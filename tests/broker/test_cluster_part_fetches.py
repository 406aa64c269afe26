"""Fetches of many partitions in a cluster: one call per leader, one wait, leaders that move, cold records."""

import asyncio

import pytest
from tests.anybody import ANYBODY, FORWARDED
from tests.broker.brokers import until
from tests.broker.cluster_world import World, running_world
from tests.broker.drafts import draft, numbered
from tests.broker.part_reads import ALL, BYTES_MAX, fetch_parts, read_values

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.storage.errors import LeaderUnknown, NotFound, NotLeader
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

NAMES = ("a", "b", "c")
EARLIEST, LATEST = Position(Anchor.EARLIEST), Position(Anchor.LATEST)
LONG = FetchLimits(1_000, BYTES_MAX, wait_ms=20_000)


def three(store: MemoryObjectStore) -> dict[str, MemoryObjectStore]:
    return dict.fromkeys(NAMES, store)


async def produce(world: World, number: int, *values: bytes) -> None:
    await world.brokers["a"].produce(ANYBODY, "t", draft(list(values)), ProduceOptions(partition=number))


async def test_many_partitions_cost_one_call_per_leader() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 12, {})
        for number in range(12):
            await produce(world, number, b"%d" % number)
        before = world.brokers["c"].measurements().cluster.forwarded
        answers = await fetch_parts(world.brokers["c"], dict.fromkeys(range(12), EARLIEST))
        assert read_values(answers) == {number: [b"%d" % number] for number in range(12)}
        assert world.brokers["c"].measurements().cluster.forwarded == before + 2


async def test_limits_hold_over_all_leaders() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 6, {})
        for number in range(6):
            await produce(world, number, *[b"x" * 10] * 10)
        for records in (1, 2, 5, 25, 60):
            answers = await fetch_parts(world.brokers["b"], dict.fromkeys(range(6), 0), FetchLimits(records, BYTES_MAX))
            assert 0 < sum(map(len, read_values(answers).values())) <= records
        small = read_values(await fetch_parts(world.brokers["b"], dict.fromkeys(range(6), 0), FetchLimits(1_000, 100)))
        assert 0 < sum(map(len, small.values())) <= 10


@pytest.mark.parametrize("number", range(3))
async def test_the_first_leader_with_records_ends_the_wait(number: int) -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        asked = world.brokers["b"]
        poll = asyncio.ensure_future(fetch_parts(asked, dict.fromkeys(range(3), LATEST), LONG))
        await until(lambda: sum(broker.measurements().waiting_fetches for broker in world.brokers.values()) == 3)
        await produce(world, number, b"new")
        answers = await poll
        assert read_values(answers) == {number: [b"new"]}
        assert [answer.error for answer in answers] == [None] * 3
        await until(lambda: not any(broker.measurements().waiting_fetches for broker in world.brokers.values()))


async def test_a_wait_goes_on_at_the_next_leader() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        poll = asyncio.ensure_future(fetch_parts(world.brokers["b"], dict.fromkeys(range(3), 0), LONG))
        await until(lambda: world.brokers["c"].measurements().waiting_fetches == 1)
        shard = next(shard for shard, leader in world.leaders.items() if leader.broker_id == "c")
        shards = (await world.brokers["a"].known_topic(ANYBODY, "t")).shards
        await world.give(shard, "a")
        await asyncio.sleep(0)
        assert not poll.done()
        await produce(world, shards.index(shard), b"at the next one")
        assert list(read_values(await poll).values()) == [[b"at the next one"]]


async def test_the_others_are_read_while_a_shard_has_no_leader() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        shards = (await world.brokers["a"].known_topic(ANYBODY, "t")).shards
        for number in range(3):
            await produce(world, number, b"%d" % number)
        await world.take(shards[1])
        answers = await fetch_parts(world.brokers["b"], dict.fromkeys(range(3), 0), LONG)
        assert read_values(answers) == {0: [b"0"], 2: [b"2"]}
        assert isinstance(answers[1].error, LeaderUnknown)
        poll = asyncio.ensure_future(fetch_parts(world.brokers["b"], {0: 1, 1: 0, 2: 1}, LONG))
        await until(lambda: any(broker.measurements().waiting_fetches for broker in world.brokers.values()))
        await world.usurp(shards[1], "c")
        assert read_values(await poll) == {1: [b"1"]}


async def test_a_request_of_a_peer_is_not_forwarded() -> None:
    async with running_world(three(MemoryObjectStore())) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        parts = [FetchPart("t", number, 0, BYTES_MAX) for number in range(3)]
        answers = await world.brokers["a"].fetch_parts(FORWARDED, parts, ALL)
        assert [type(answer.error) for answer in answers if answer.error] == [NotLeader, NotLeader]


async def test_unknown_topics_cost_one_look_into_the_journal() -> None:
    counted = CountingObjectStore(MemoryObjectStore())
    async with running_world({"a": counted, "b": counted.inner}) as world:
        before = counted.usage()
        parts = [FetchPart(f"none{number}", 0, 0, 1) for number in range(100)]
        answers = await world.brokers["a"].fetch_parts(ANYBODY, parts, LONG)
        assert all(isinstance(answer.error, NotFound) for answer in answers)
        assert (counted.usage() - before).requests() <= 3


@pytest.mark.parametrize("alive", [True, False])
async def test_cold_partitions_are_read_by_the_broker_that_was_asked(alive: bool) -> None:
    inner = MemoryObjectStore()
    mine, theirs = CountingObjectStore(inner), CountingObjectStore(inner)
    async with running_world({"a": theirs, "b": mine}, shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 8, {})
        for number in range(8):
            await world.brokers["a"].produce(ANYBODY, "t", numbered(0, 10), ProduceOptions(partition=number))
        await world.brokers["a"].archive_now()
        await world.brokers["a"].produce(ANYBODY, "t", numbered(10, 1), ProduceOptions(partition=3))
        world.brokers["a"]._parts.resources.hot_tail.drop(0)
        before = theirs.usage()
        if not alive:
            await world.kill("a")
        answers = await fetch_parts(world.brokers["b"], dict.fromkeys(range(8), 0))
        assert read_values(answers) == {number: [b"%d" % n for n in range(10)] for number in range(8)}
        assert (theirs.usage() - before).requests() == 0
        before_mine = mine.usage()
        again = await fetch_parts(world.brokers["b"], dict.fromkeys(range(8), 5))
        assert {len(values) for values in read_values(again).values()} == {5}
        assert (mine.usage() - before_mine).requests() <= 16, "a proof and a read each"


async def test_partitions_at_their_ends_cost_no_look_into_the_bucket() -> None:
    inner = MemoryObjectStore()
    mine = CountingObjectStore(inner)
    async with running_world({"a": inner, "b": mine}, shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 50, {})
        await fetch_parts(world.brokers["b"], dict.fromkeys(range(50), LATEST))
        before = mine.usage()
        await fetch_parts(world.brokers["b"], dict.fromkeys(range(50), LATEST), FetchLimits(10, 1_000, wait_ms=30))
        assert (mine.usage() - before).requests() == 0


async def test_a_broker_that_says_that_a_topic_is_gone_uses_it_no_more() -> None:
    async with running_world(three(MemoryObjectStore()), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await produce(world, 0, b"old")
        await a.archive_now()
        assert read_values(await fetch_parts(b, {0: 0})) == {0: [b"old"]}
        await world.coordinations["b"]._sync.aclose()
        await a.delete_topic(ANYBODY, "t")
        assert b.topic(ANYBODY, "t"), "it has not heard of that"
        (answer,) = await fetch_parts(b, {0: LATEST})
        assert isinstance(answer.error, NotFound)
        await a.create_topic(ANYBODY, "t", 1, {})
        await produce(world, 0, b"new")
        assert read_values(await fetch_parts(b, {0: 0})) == {0: [b"new"]}
