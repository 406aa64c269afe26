"""A leader that was replaced and does not know it never answers with an older end than was acknowledged before the
request.

`cut_off`: the broker learns nothing from etcd and has no valid lease, like a broker that was paused or cut off.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.cluster_world import CLUSTER, World, running_world
from tests.broker.drafts import numbered, values_of
from tests.broker.logs import partition_log
from tests.broker.set_clock import SetClock
from tests.coordinator.stepped_clock import SteppedClock
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import Anchor, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.read.long_poll import PROVE_EVERY_S
from tidelog.services.broker.shard.leadership_proof import READERS_TRUST_S
from tidelog.services.broker.shard.shard_set import PROVEN_ALONE_S
from tidelog.storage.errors import Fenced, LeaderUnknown, OutOfRange, Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
LATEST = Position(Anchor.LATEST)
FAR_FUTURE = Position(Anchor.TIMESTAMP, 4_000_000_000_000)
HASTY = replace(CLUSTER, forward_timeout_ms=50)


async def parts_of(broker: Broker, offset: int | Position, *, wait_ms: int = 0) -> FetchedPart:
    """The answer for the partition in a fetch of parts; its error is raised."""
    (answer,) = await broker.fetch_parts(
        ANYBODY, [FetchPart("t", 0, offset, 1 << 20)], FetchLimits(10, 1 << 20, wait_ms)
    )
    if answer.error:
        raise answer.error
    return answer


Question = Callable[[Broker], Awaitable[object]]
QUESTIONS: dict[str, Question] = {
    "latest": lambda broker: broker.resolve(ANYBODY, "t", 0, LATEST),
    "earliest": lambda broker: broker.resolve(ANYBODY, "t", 0, Position(Anchor.EARLIEST)),
    "from the end": lambda broker: broker.resolve(ANYBODY, "t", 0, Position(Anchor.FROM_END, 1)),
    "a time beyond the end": lambda broker: broker.resolve(ANYBODY, "t", 0, FAR_FUTURE),
    "log": lambda broker: partition_log(broker, "t", 0),
    "fetch at its end": lambda broker: broker.fetch(ANYBODY, "t", 0, 3, ALL),
    "fetch beyond its end": lambda broker: broker.fetch(ANYBODY, "t", 0, 4, ALL),
    "long poll": lambda broker: broker.fetch(ANYBODY, "t", 0, 3, FetchLimits(10, 1 << 20, wait_ms=50)),
    "parts at their end": lambda broker: parts_of(broker, 3),
    "parts at latest": lambda broker: parts_of(broker, LATEST),
    "parts beyond their end": lambda broker: parts_of(broker, 4),
    "long poll of parts": lambda broker: parts_of(broker, 3, wait_ms=50),
    "fetch below its end": lambda broker: broker.fetch(ANYBODY, "t", 0, 0, ALL),
}


async def deposed(world: World, *, archived: bool = False) -> tuple[Broker, Broker]:
    """`a` has led three records and is cut off; `b` has acknowledged two more since."""
    a, b = world.brokers["a"], world.brokers["b"]
    await a.create_topic(ANYBODY, "t", 1, {})
    await a.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
    assert await a.resolve(ANYBODY, "t", 0, LATEST) == 3
    world.coordinations["a"].cut_off()
    await world.usurp(0, "b")
    await b.produce(ANYBODY, "t", numbered(3, 2), TO_ZERO)
    if archived:
        await b.archive_now()
    assert await b.resolve(ANYBODY, "t", 0, LATEST) == 5
    return a, b


def two(store: ObjectStore | None = None) -> dict[str, ObjectStore]:
    return dict.fromkeys(("a", "b"), store or MemoryObjectStore())


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
async def test_a_replaced_leader_that_is_cut_off_sends_its_clients_elsewhere(question: Question) -> None:
    clock = SetClock()
    async with running_world(two(), shards=1, settings=HASTY, clock=clock) as world:
        a, _ = await deposed(world)
        if question in (QUESTIONS["earliest"], QUESTIONS["fetch below its end"]):
            clock.pass_time(READERS_TRUST_S)  # for this long, a commit is proof enough
        with pytest.raises(LeaderUnknown):
            await question(a)
        assert not a.route(ANYBODY, "t", 0).local, "it has stepped down"


async def test_a_replaced_leader_that_hears_of_the_new_one_asks_it() -> None:
    async with running_world(two(), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        await world.usurp(0, "b")
        await b.produce(ANYBODY, "t", numbered(3, 2), TO_ZERO)
        assert await a.resolve(ANYBODY, "t", 0, LATEST) == 5
        assert (await partition_log(a, "t", 0)).high_watermark == 5
        assert values_of(await a.fetch(ANYBODY, "t", 0, 3, ALL)) == [b"3", b"4"]


async def test_a_request_with_fresh_false_gets_the_older_end_and_no_leader_steps_down() -> None:
    async with running_world(two(), shards=1, settings=HASTY) as world:
        a, _ = await deposed(world)
        assert await a.resolve(ANYBODY, "t", 0, LATEST, fresh=False) == 3
        assert (await partition_log(a, "t", 0, fresh=False)).high_watermark == 3
        assert values_of(await a.fetch(ANYBODY, "t", 0, 3, replace(ALL, fresh=False))) == []
        assert a.route(ANYBODY, "t", 0).local


async def test_a_broker_that_sends_on_to_a_replaced_leader_gets_no_older_end_either() -> None:
    """Both are cut off: `c` still believes that `a` leads."""
    stores: dict[str, ObjectStore] = dict.fromkeys(("a", "b", "c"), MemoryObjectStore())
    async with running_world(stores, shards=1, settings=HASTY) as world:
        c = world.brokers["c"]
        world.coordinations["c"].cut_off()
        await deposed(world)
        await c.known_topic(ANYBODY, "t")
        for question in ("latest", "log", "fetch at its end", "long poll"):
            with pytest.raises(LeaderUnknown):
                await QUESTIONS[question](c)


async def test_a_manifest_beyond_its_end_shows_a_leader_that_it_was_replaced() -> None:
    async with running_world(two(), shards=1, settings=HASTY) as world:
        a, _ = await deposed(world, archived=True)
        leader = world.brokers["a"].shards.leading(0)
        (state,) = tuple(leader.partitions)
        with pytest.raises(Fenced):
            await leader.partitions.refresh(state)
        assert not a.route(ANYBODY, "t", 0).local


async def test_without_etcd_and_without_the_store_nobody_gets_an_end() -> None:
    store = MemoryObjectStore()
    faulty = FaultyObjectStore(store, FaultPlan(), Runtime())
    async with running_world({"a": faulty, "b": store}, shards=1, settings=HASTY) as world:
        a, _ = await deposed(world)
        faulty.plan = FaultPlan(unavailable=1.0)
        asked = [QUESTIONS[question](a) for question in ("latest", "log", "fetch at its end", "long poll")]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unavailable] * 4
        assert a.route(ANYBODY, "t", 0).local, "there is no proof that another leads"
        faulty.plan = FaultPlan()
        with pytest.raises(LeaderUnknown):
            await a.resolve(ANYBODY, "t", 0, LATEST)


async def test_a_poll_that_waits_at_a_replaced_leader_is_not_left_waiting() -> None:
    clock = SteppedClock()
    store = MemoryObjectStore()
    async with running_world({"b": store, "a": store}, shards=2, settings=HASTY) as world:
        await world.start("w", store, HASTY, clock)
        w, b = world.brokers["w"], world.brokers["b"]
        await world.give(0, "w")
        await b.create_topic(ANYBODY, "t", 1, {})
        await w.known_topic(ANYBODY, "t")
        poll = asyncio.create_task(
            w.fetch(ANYBODY.not_forwarded(), "t", 0, 0, FetchLimits(10, 1 << 20, wait_ms=60_000))
        )
        await until(lambda: w.measurements().waiting_fetches == 1)
        world.coordinations["w"].cut_off()
        await world.usurp(0, "b")
        clock.advance(PROVE_EVERY_S)
        with pytest.raises(LeaderUnknown):
            await poll


async def test_reads_at_the_end_ask_the_store_for_nothing_while_the_lease_is_certain() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    async with running_world({"a": counting}, shards=1) as world:
        a = world.brokers["a"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        before = counting.usage()
        for _ in range(10):
            assert await a.resolve(ANYBODY, "t", 0, LATEST) == 3
            assert values_of(await a.fetch(ANYBODY, "t", 0, 3, ALL)) == []
        assert (counting.usage() - before).counts().gets == 0


async def test_without_a_lease_many_readers_at_the_end_cost_one_check_at_a_time() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    async with running_world({"a": counting}, shards=1) as world:
        a = world.brokers["a"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        world.coordinations["a"].cut_off()
        before = counting.usage()
        ends = await asyncio.gather(*(a.resolve(ANYBODY, "t", 0, LATEST) for _ in range(200)))
        assert ends == [3] * 200
        assert (counting.usage() - before).counts().gets <= 2 * 2


async def test_a_broker_alone_that_was_paused_finds_out_that_another_took_its_bucket() -> None:
    store, clock = MemoryObjectStore(), SteppedClock()
    async with running_broker(store, clock=clock, shards=1, flush_interval_ms=0) as paused:
        await paused.create_topic(ANYBODY, "t", 1, {})
        await paused.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        async with running_broker(store, shards=1) as other:
            await other.produce(ANYBODY, "t", numbered(3, 1), TO_ZERO)
            clock.advance(PROVEN_ALONE_S)
            with pytest.raises(Fenced):
                await paused.resolve(ANYBODY, "t", 0, LATEST)
            with pytest.raises(Fenced):
                await paused.fetch(ANYBODY, "t", 0, 3, ALL)
            assert not paused.status().ready


async def test_a_broker_alone_asks_its_log_now_and_then_while_its_end_is_asked_for() -> None:
    counting, clock = CountingObjectStore(MemoryObjectStore()), SteppedClock()
    async with running_broker(counting, clock=clock, shards=1, flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        clock.advance(PROVEN_ALONE_S)
        before = counting.usage()
        for _ in range(40):
            assert await broker.resolve(ANYBODY, "t", 0, LATEST) == 3
            with pytest.raises(OutOfRange):
                await broker.fetch(ANYBODY, "t", 0, 4, ALL)
            clock.advance(PROVEN_ALONE_S / 10)
        assert (counting.usage() - before).counts().gets <= 2 * 5


async def forgotten(world: World, *, of: str = "a") -> None:
    """No record is in memory, and the bucket holds them only in segments, as after the grace."""
    parts = world.brokers[of]._parts
    parts.resources.hot_tail.drop(0)
    for info in await parts.store.list("wal/0000/"):
        if info.key.endswith(".parquet"):
            await parts.store.delete(info.key)


async def test_a_replaced_leader_whose_entries_are_deleted_sends_its_readers_elsewhere() -> None:
    async with running_world(two(), shards=1, settings=HASTY) as world:
        a, b = await deposed(world, archived=True)
        await forgotten(world)
        with pytest.raises(LeaderUnknown):
            await a.fetch(ANYBODY.not_forwarded(), "t", 0, 0, replace(ALL, fresh=False))
        assert not a.route(ANYBODY, "t", 0).local
        assert values_of(await a.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"%d" % n for n in range(5)], "from segments"
        assert values_of(await b.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"%d" % n for n in range(5)]


async def test_a_replaced_leader_finds_entries_that_were_deleted_in_the_segments_of_the_new_one() -> None:
    """The new leader has archived nothing beyond what the replaced leader knows, so the manifest does not prove that it
    exists."""
    async with running_world(two(), shards=1, settings=HASTY) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 3), TO_ZERO)
        world.coordinations["a"].cut_off()
        await world.usurp(0, "b")
        await b.known_topic(ANYBODY, "t")
        assert await b.resolve(ANYBODY, "t", 0, LATEST) == 3
        await b.archive_now()
        await forgotten(world)
        assert values_of(await a.fetch(ANYBODY.not_forwarded(), "t", 0, 0, replace(ALL, fresh=False))) == [
            b"0",
            b"1",
            b"2",
        ]
        assert await a.resolve(ANYBODY.not_forwarded(), "t", 0, Position(Anchor.TIMESTAMP, 0), fresh=False) == 0
