"""A broker's bucket is swept without a command: by the leader of shard 0, and by no other broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.anybody import ANYBODY
from tests.broker import brokers
from tests.broker.brokers import running_broker
from tests.broker.cluster_world import CLUSTER, running_world
from tests.broker.drafts import numbered
from tests.broker.fast_clock import FastClock
from tests.broker.swept_bucket import DAY_S, RECORDS, TO_ZERO, SweptBucket, check_records
from tests.coordinator.virtual_time import LoopClock, virtually
from tests.storage.archive_scenes import ManualClock
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Denied
from tidelog.storage.layout import TOPICS_PREFIX
from tidelog.storage.object_store import LIST_PAGE_MAX, ObjectInfo
from tidelog.storage.runtime import Clock, Runtime
from tidelog.storage.stores.memory import MemoryObjectStore

EACH_MINUTE = 60_000


class HeldLists(MemoryObjectStore):
    """Holds back the listing of topics at the start of a sweep while `gate` is closed; `asked` counts these
    listings."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.gate = asyncio.Event()
        self.gate.set()
        self.on_list: Callable[[], None] = lambda: None
        self.asked = 0
        self.held = 0

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        if prefix == TOPICS_PREFIX:
            self.asked += 1
            self.on_list()
            self.held += not self.gate.is_set()
            await self.gate.wait()
        return await super().list(prefix, start_after=start_after, limit=limit)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for two days of virtual time at the most."""
    await brokers.until(condition, seconds_max=2 * DAY_S, every_s=10.0)


def sweeps_of(broker: LocalBroker) -> int:
    return broker.measurements().sweeps.finished


@virtually
async def test_orphans_are_deleted_after_the_grace_while_records_arrive_and_live_objects_stay() -> None:
    bucket = SweptBucket()
    await bucket.fill()
    changes = {"shards": 2, "archiver_sweep_interval_ms": EACH_MINUTE, "archiver_interval_ms": 1_000}
    async with running_broker(bucket.store, clock=LoopClock(), **changes) as broker:
        await broker.create_topic(ANYBODY, "other", 1, {})
        await until(lambda: sweeps_of(broker) >= 2)
        assert await bucket.left() == bucket.orphans, "they are too young by the store's clock, however late it is here"
        bucket.pass_a_day()
        before = sweeps_of(broker)
        async with asyncio.timeout(DAY_S):
            while sweeps_of(broker) < before + 2:
                await broker.produce(ANYBODY, "other", numbered(0, 3), TO_ZERO)
                await asyncio.sleep(5)
        assert await bucket.left() == []
        assert broker.measurements().sweeps.deleted == {"upload": 2, "staging": 1}
        await check_records(broker)


@virtually
async def test_an_idle_broker_makes_no_put_however_often_it_sweeps() -> None:
    bucket = SweptBucket()
    await bucket.fill()
    bucket.pass_a_day()
    changes = {"shards": 2, "archiver_sweep_interval_ms": EACH_MINUTE}
    async with running_broker(bucket.store, clock=LoopClock(), **changes) as broker:
        await until(lambda: sweeps_of(broker) >= 2)
        assert await bucket.left() == []
        began, before = sweeps_of(broker), broker.measurements().usage
        await until(lambda: sweeps_of(broker) >= began + 5)
        spent = (broker.measurements().usage - before).counts()
        assert (spent.puts, spent.deletes) == (0, 0)
        assert spent.lists > 0


@pytest.mark.parametrize("changes", [{"archiver_sweep_interval_ms": 0}, {"archiver_upkeep": False}])
@virtually
async def test_a_broker_that_may_not_sweep_or_leaves_it_to_a_compactor_lists_no_topics(
    changes: dict[str, object],
) -> None:
    bucket = SweptBucket()
    store, clock = HeldLists(bucket.clock), LoopClock()
    async with running_broker(store, clock=clock, **{"archiver_sweep_interval_ms": EACH_MINUTE, **changes}) as broker:
        began_s = clock.monotonic()
        await until(lambda: clock.monotonic() - began_s > 600)
        assert (sweeps_of(broker), store.asked) == (0, 0)


async def test_by_default_it_comes_an_hour_after_the_start_and_then_once_a_day() -> None:
    store, clock = HeldLists(ManualClock()), FastClock(20_000)
    each_day = Settings().archiver_sweep_interval_ms
    async with running_broker(store, clock=clock, archiver_sweep_interval_ms=each_day) as broker:
        began_s, at_s = clock.monotonic(), list[float]()
        store.on_list = lambda: at_s.append(clock.monotonic())
        await brokers.until(lambda: sweeps_of(broker) >= 2)
    assert at_s[0] - began_s >= 3_600
    assert at_s[1] - at_s[0] >= 86_400


@virtually
async def test_a_store_that_is_away_for_a_while_only_puts_it_off(caplog: pytest.LogCaptureFixture) -> None:
    bucket = SweptBucket()
    await bucket.fill()
    bucket.pass_a_day()
    clock = LoopClock()
    faulty = FaultyObjectStore(bucket.store, FaultPlan(), Runtime(clock))
    async with running_broker(faulty, clock=clock, shards=2, archiver_sweep_interval_ms=EACH_MINUTE) as broker:
        faulty.plan = FaultPlan(unavailable=1.0)
        await until(lambda: "the sweep failed and is tried again" in caplog.text)
        assert broker.measurements().sweeps.cut_off >= 1
        faulty.plan = FaultPlan()
        await until(lambda: sweeps_of(broker) >= 1)
        assert await bucket.left() == []
        await check_records(broker)


@virtually
async def test_a_sweep_that_fails_again_and_again_is_begun_less_and_less_often() -> None:
    class Failing(MemoryObjectStore):
        async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
            if prefix == TOPICS_PREFIX and broken:
                at_s.append(clock.monotonic())
                raise Denied("403")
            return await super().list(prefix, start_after=start_after, limit=limit)

    broken, at_s, clock = True, list[float](), LoopClock()
    async with running_broker(Failing(), clock=clock, archiver_sweep_interval_ms=3_600_000) as broker:
        await until(lambda: len(at_s) >= 8)
        gaps_s = [later - earlier for earlier, later in pairwise(at_s)]
        assert all(gap_s >= min(60 * 2**n, 3_600) for n, gap_s in enumerate(gaps_s))
        broken = False
        await until(lambda: sweeps_of(broker) >= 1)
        broken, before = True, len(at_s)
        await until(lambda: len(at_s) >= before + 2)
        assert at_s[-1] - at_s[-2] < 1_000, "after one that reached its end the waits begin anew"


@virtually
async def test_a_broker_that_stops_in_the_midst_asks_for_nothing_more_and_the_next_one_begins_again() -> None:
    bucket = SweptBucket()
    bucket.store = store = HeldLists(bucket.clock)
    await bucket.fill()
    bucket.pass_a_day()
    changes = {"shards": 2, "archiver_sweep_interval_ms": EACH_MINUTE}
    store.gate.clear()
    async with running_broker(store, clock=LoopClock(), **changes) as broker:
        await until(lambda: store.held == 1)
    counts = broker.measurements().sweeps
    assert (counts.finished, counts.cut_off, await bucket.left()) == (0, 1, bucket.orphans)
    store.gate.set()
    async with running_broker(store, clock=LoopClock(), **changes) as broker:
        await until(lambda: sweeps_of(broker) >= 1)
        assert await bucket.left() == []
        await check_records(broker)


@virtually
async def test_the_leader_of_shard_0_sweeps_for_all_until_it_lets_go() -> None:
    clock, bucket = LoopClock(), SweptBucket()
    bucket.store = store = HeldLists(bucket.clock)
    store.gate.clear()
    settings = replace(CLUSTER, archiver_sweep_interval_ms=EACH_MINUTE)
    async with running_world({"a": store, "b": store}, shards=2, settings=settings, clock=clock) as world:
        a, b = (world.brokers[name] for name in ("a", "b"))
        topic = await world.brokers["a"].create_topic(ANYBODY, "t", 2, {})
        for partition in range(2):
            await world.brokers["a"].produce(ANYBODY, "t", numbered(0, RECORDS), ProduceOptions(partition=partition))
        for broker in (a, b):
            await broker.archive_now()
        await bucket.plant(topic)
        bucket.pass_a_day()
        await until(lambda: store.held == 1)
        await world.give(0, "b")
        assert (a.measurements().sweeps.cut_off, sweeps_of(a)) == (1, 0)
        await until(lambda: store.held == 2)
        store.gate.set()
        await until(lambda: sweeps_of(b) >= 2)
        assert (sweeps_of(a), await bucket.left()) == (0, [])


@virtually
async def test_a_sweep_under_way_does_not_hold_up_produces() -> None:
    """The sweep holds nothing that a commit needs."""
    store = HeldLists(ManualClock())
    store.gate.clear()
    changes = {"shards": 1, "archiver_sweep_interval_ms": EACH_MINUTE}
    async with running_broker(store, clock=LoopClock(), **changes) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await until(lambda: store.held == 1)
        for number in range(20):
            (appended,) = await broker.produce(ANYBODY, "t", numbered(number, 1), TO_ZERO)
            assert appended.base_offset == number
        assert (store.held, sweeps_of(broker)) == (1, 0)
        store.gate.set()
        await until(lambda: sweeps_of(broker) >= 1)
