"""A cluster whose bucket fails while shards move, and a cluster whose key-value store is down."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import until
from tests.broker.cluster_load import check_log, load_on
from tests.broker.cluster_members import QUICK, SharedKeyValueStore, running_members
from tests.broker.cluster_world import World, running_world
from tests.broker.drafts import numbered, values_of
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.coordinator.kv.key_value import (
    RANGE_LIMIT,
    Compare,
    KeyValue,
    Lease,
    Operation,
    RangePage,
    TransactionResult,
    WatchBatch,
)
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)
NAMES = ("a", "b", "c")
SHORT_LEASES = replace(QUICK, lease_ttl_ms=1_000)
BAD_WEATHER = FaultPlan(
    unavailable=0.05,
    contended=0.05,
    reset=0.05,
    lost_answer=0.05,
    delayed=0.05,
    slow=0.1,
    slow_s_max=0.005,
    delay_s_max=0.05,
)


@pytest.mark.parametrize("seed", range(4))
async def test_shards_change_hands_in_bad_weather_and_every_acknowledged_record_is_there_once(seed: int) -> None:
    inner = MemoryObjectStore()
    stores = {
        name: FaultyObjectStore(inner, FaultPlan(), Runtime(entropy=SeededEntropy(seed * 10 + place)))
        for place, name in enumerate(NAMES)
    }
    async with running_world(stores, shards=2) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 2, {})
        load = load_on(world, "t", 2)
        load.start()
        for store in stores.values():
            store.plan = BAD_WEATHER
        for turn in range(8):
            await until(load.more(2))
            await moved(world, turn % 2, NAMES[(turn + turn // 2 + seed) % 3], cleanly=turn % 3 != 2)
        for store in stores.values():
            store.plan = FaultPlan()
        await until(load.more(2))
        await load.stop()
        for number in range(2):
            await check_log(world.brokers[NAMES[seed % 3]], load, "t", number)


async def moved(world: World, shard: int, name: str, *, cleanly: bool) -> None:
    """Move a shard to `name`, retrying until a claim succeeds; the old leader is not told and finds out by itself."""
    if cleanly:
        await world.take(shard)
    while True:
        try:
            await world.usurp(shard, name)
            return
        except Unavailable:
            continue


class AwayKeyValueStore(SharedKeyValueStore):
    """Cannot be reached while `away`. It keeps its data; leases run out."""

    away = False

    async def get(self, key: str) -> KeyValue | None:
        self._check()
        return await super().get(key)

    async def range(
        self, prefix: str, *, limit: int = RANGE_LIMIT, after: str | None = None, revision: int | None = None
    ) -> RangePage:
        self._check()
        return await super().range(prefix, limit=limit, after=after, revision=revision)

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        self._check()
        return await super().put(key, value, lease_id=lease_id)

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        self._check()
        return await super().transact(compares, then, otherwise)

    async def grant(self, ttl_s: float) -> Lease:
        self._check()
        return await super().grant(ttl_s)

    async def keep_alive(self, lease_id: int) -> float:
        self._check()
        return await super().keep_alive(lease_id)

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        async for batch in super().watch(prefix, from_revision):
            await until(lambda: not self.away)
            yield batch

    async def incarnation(self) -> str:
        self._check()
        return await super().incarnation()

    def _check(self) -> None:
        if self.away:
            raise Unavailable("the key-value store is away")


async def test_a_key_value_store_that_is_away_stops_neither_records_nor_topics() -> None:
    store, kv = MemoryObjectStore(), AwayKeyValueStore(Runtime())
    async with running_members(("a", store), ("b", store), settings=SHORT_LEASES, kv=kv) as members:
        a, b = members.brokers["a"], members.brokers["b"]
        await a.create_topic(ANYBODY, "t", 4, {})
        load = load_on(members, "t", 4)
        load.start()
        await until(load.more(3))
        led = {name: dict(members.brokers[name].shards.led()) for name in ("a", "b")}
        kv.away = True
        await until(lambda: bool(a.cluster(ANYBODY).trouble and b.cluster(ANYBODY).trouble))
        assert (a.status().ready, "cannot be reached" in a.status().reason) == (True, True)
        await until(load.more(20))
        await b.create_topic(ANYBODY, "made-meanwhile", 2, {})
        await a.produce(ANYBODY, "made-meanwhile", numbered(0, 1), TO_ZERO)
        assert values_of(await b.fetch(ANYBODY, "made-meanwhile", 0, 0, ALL)) == [b"0"]
        assert {name: dict(members.brokers[name].shards.led()) for name in ("a", "b")} == led
        kv.away = False
        await until(lambda: not a.cluster(ANYBODY).trouble and not b.cluster(ANYBODY).trouble)
        await members.balanced()
        await until(load.more(3))
        await load.stop()
        for number in range(4):
            await check_log(a, load, "t", number)
