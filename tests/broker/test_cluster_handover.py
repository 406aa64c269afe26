"""Shards move while they are used: no acknowledged record is lost, doubled or out of order (inv. 1, 4, 7)."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.attempts import attempts, within
from tests.broker.brokers import until
from tests.broker.cluster_load import check_log, load_on, whole_log
from tests.broker.cluster_world import running_world
from tests.broker.drafts import numbered, values_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.logs import partition_log

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions, ProducerSequence
from tidelog.storage.errors import Fenced, LeaderUnknown, NotLeader, OffsetConflict
from tidelog.storage.layout import MANIFESTS_PREFIX
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
NAMES = ("a", "b", "c")


async def test_shards_change_hands_under_load_and_no_record_is_lost_or_doubled(store: ObjectStore) -> None:
    async with running_world(dict.fromkeys(NAMES, store), shards=3) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        load = load_on(world, "t", 3)
        load.start()
        for turn in range(12):
            await until(load.more(3))
            await world.give(turn % 3, NAMES[(turn // 3 + turn) % 3])
            if turn % 4 == 3:
                await world.brokers[NAMES[turn % 3]].archive_now()
        await until(load.more(3))
        await load.stop()
        for number in range(3):
            await check_log(world.brokers["a"], load, "t", number)
        assert sum(producer.retries for producer in load.producers) == 0, "a clean handover costs no retry"
        assert sum(world.brokers[name].measurements().cluster.handovers for name in NAMES) == 12


async def test_a_clean_handover_takes_less_than_half_a_second() -> None:
    for attempt in attempts():
        with attempt:
            within(0.5, await handover_s(), "a clean handover")


async def handover_s() -> float:
    """The median of several."""
    async with running_world(dict.fromkeys(NAMES, MemoryObjectStore()), shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        load = load_on(world, "t", 1)
        load.start()
        loop, took_s = asyncio.get_running_loop(), []
        for turn in range(11):
            await until(load.more(5))
            began_s = loop.time()
            await world.give(0, NAMES[(turn + 1) % 3])
            await until(load.more(1))
            took_s.append(loop.time() - began_s)
        await load.stop()
        return sorted(took_s)[5]


async def test_a_leader_that_dies_costs_a_retry_and_nothing_else(store: ObjectStore) -> None:
    async with running_world(dict.fromkeys(NAMES, store), shards=2) as world:
        await world.brokers["c"].create_topic(ANYBODY, "t", 2, {})
        load = load_on(world, "t", 2)
        load.start()
        await until(load.more(5))
        await world.kill("a")
        await world.usurp(0, "b")
        await until(load.more(5))
        await world.kill("b")
        for shard in range(2):
            await world.usurp(shard, "c")
        await until(load.more(5))
        await load.stop()
        for number in range(2):
            await check_log(world.brokers["c"], load, "t", number)


async def test_a_release_commits_and_answers_what_was_taken() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_world({"a": gated, "b": inner}, shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        gated.hold()
        taken = [
            asyncio.create_task(world.brokers["b"].produce(ANYBODY, "t", numbered(n, 1), TO_ZERO)) for n in range(5)
        ]
        await gated.arrived.wait()
        moving = asyncio.create_task(world.give(0, "b"))
        await until(lambda: not world.brokers["a"].shards.leads(0))
        late = asyncio.create_task(world.brokers["a"].produce(ANYBODY, "t", numbered(9, 1), TO_ZERO))
        with pytest.raises((NotLeader, LeaderUnknown)):
            await world.brokers["a"].produce(ANYBODY.not_forwarded(), "t", numbered(8, 1), TO_ZERO)
        gated.gate.set()
        assert sorted(answer.base_offset for (answer,) in await asyncio.gather(*taken)) == list(range(5))
        await moving
        assert (await late)[0].base_offset == 5
        assert values_of(await world.brokers["b"].fetch(ANYBODY, "t", 0, 5, ALL)) == [b"9"]


async def test_a_paused_leader_is_fenced_at_its_next_commit_and_showed_no_uncommitted_record() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_world({"a": gated, "b": inner, "c": inner}, shards=1) as world:
        a, b, c = (world.brokers[name] for name in NAMES)
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 2), TO_ZERO)
        gated.hold()  # the process is paused
        lost = asyncio.create_task(a.produce(ANYBODY, "t", numbered(7, 1), TO_ZERO))
        await gated.arrived.wait()
        await world.usurp(0, "b")
        await c.produce(ANYBODY, "t", numbered(2, 2), TO_ZERO)
        assert values_of(await a.fetch(ANYBODY.not_forwarded(), "t", 0, 0, ALL)) == [b"0", b"1"], (
            "old, but of the log (inv. 1)"
        )
        gated.gate.set()  # the process continues
        with pytest.raises(Fenced):
            await lost
        await until(lambda: not a.shards.led())
        assert a.measurements().cluster.fencings == 1
        await until(lambda: a.measurements().cache_bytes == 0)
        for broker in (a, b, c):
            assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1", b"2", b"3"]
        await world.give(0, "a")
        (answer,) = await c.produce(ANYBODY, "t", numbered(4, 1), TO_ZERO)
        assert answer.base_offset == 4


async def test_a_leader_that_does_not_know_yet_that_it_was_replaced_denies_no_newer_record() -> None:
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys(NAMES, store), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
        await world.usurp(0, "b")
        await b.produce(ANYBODY, "t", numbered(1, 3), TO_ZERO)
        assert a.shards.leads(0)
        with pytest.raises((NotLeader, LeaderUnknown)):
            await a.fetch(ANYBODY.not_forwarded(), "t", 0, 3, ALL)


async def test_a_leader_that_was_replaced_unknowingly_refuses_no_append_by_its_old_state() -> None:
    """Either answer would be final for the client: clients do not retry after a conflict."""
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys(NAMES, store), shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0)))
        await world.usurp(0, "b")
        await b.produce(ANYBODY, "t", numbered(1, 3), ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 1)))
        next_sequence = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 4))
        for options in (ProduceOptions(partition=0, expected_offset=4), next_sequence):
            with pytest.raises((NotLeader, LeaderUnknown)):
                await a.produce(ANYBODY.not_forwarded(), "t", numbered(4, 1), options)
        with pytest.raises(OffsetConflict):
            await b.produce(
                ANYBODY.not_forwarded(), "t", numbered(4, 1), ProduceOptions(partition=0, expected_offset=1)
            )


async def test_a_conflict_with_an_append_that_commits_meanwhile_gives_the_offset_after_it() -> None:
    store = GatedObjectStore(MemoryObjectStore())
    async with running_world({"a": store}, shards=1) as world:
        broker = world.brokers["a"]
        await broker.create_topic(ANYBODY, "t", 1, {})
        store.hold()
        options = ProduceOptions(partition=0, expected_offset=0)
        first = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 1), options))
        await store.arrived.wait()
        world.coordinations["a"].cut_off()  # with a valid lease it would not read the log
        store.hold_reads()
        second = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(1, 1), options))
        await store.read_arrived.wait()  # it checks the log for another leader
        store.gate.set()
        await first
        store.read_gate.set()
        with pytest.raises(OffsetConflict) as conflict:
            await second
        assert conflict.value.next_offset == 1


async def test_producers_that_wait_at_a_replaced_leader_soon_get_an_answer() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_world({"a": gated, "b": inner, "c": inner}, shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
        gated.hold()
        waiting = asyncio.create_task(world.brokers["c"].produce(ANYBODY, "t", numbered(0, 1), options))
        await gated.arrived.wait()
        await world.usurp(0, "b")
        with pytest.raises(Exception, match="outcome is unknown"):
            await waiting
        (answer,) = await world.brokers["c"].produce(ANYBODY, "t", numbered(0, 1), options)
        assert answer.base_offset == 0
        gated.gate.set()
        assert await whole_log(world.brokers["b"], "t", 0) == [(0, b"0")]


async def test_a_claim_with_an_epoch_that_the_log_has_seen_is_fenced_and_nothing_is_led() -> None:
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys(NAMES, store), shards=1) as world:
        await world.give(0, "b")
        with pytest.raises(Fenced):
            await world.brokers["a"].shards.lead(0, 1)
        assert world.brokers["a"].shards.led() == {}
        assert world.brokers["b"].shards.led() == {0: 2}


async def test_archiving_ends_with_leadership_and_the_next_leader_continues_with_it() -> None:
    inner = MemoryObjectStore()
    gated = GatedObjectStore(inner)
    async with running_world({"a": gated, "b": inner}, shards=1) as world:
        a, b = world.brokers["a"], world.brokers["b"]
        await a.create_topic(ANYBODY, "t", 1, {})
        await a.produce(ANYBODY, "t", numbered(0, 50), TO_ZERO)
        gated.hold(MANIFESTS_PREFIX)
        archiving = asyncio.create_task(a.archive_now())
        await gated.arrived.wait()
        await world.give(0, "b")
        await archiving
        await b.produce(ANYBODY, "t", numbered(50, 50), TO_ZERO)
        await b.archive_now()
        log = await partition_log(a, "t", 0)
        assert (log.cold_end, log.high_watermark) == (100, 100)
        gated.gate.set()
        assert values_of(await a.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"%d" % n for n in range(100)]
