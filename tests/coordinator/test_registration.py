"""A broker's registration: it keeps its lease and its record current, and detects another process in its place."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.faulty_key_value_store import FaultyKeyValueStore
from tests.coordinator.virtual_time import LoopClock, virtually

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, decode_value, encode_value
from tidelog.coordinator.leadership.registration import Registration
from tidelog.storage.runtime import Runtime, SeededEntropy

KEYS = ClusterKeys("main")
ME = BrokerRecord("a", "a1", "http://a:1", "z", "1", 0, eligible=False, stopping=False)
LEASE_TTL_S = 6.0
REBALANCE_DELAY_S = 3.0


class Registered:
    """A registration, its connection to the store, and the store."""

    def __init__(self) -> None:
        self.runtime = Runtime(LoopClock(), SeededEntropy(1))
        self.store = EmbeddedKeyValueStore(self.runtime)
        self.network = FaultyKeyValueStore(self.store, self.runtime)
        self.believed = True
        self.registration = Registration(
            self.network,
            KEYS,
            ME,
            self.runtime,
            lease_ttl_s=LEASE_TTL_S,
            rebalance_delay_s=REBALANCE_DELAY_S,
            may_register=self.may_register,
            on_change=lambda: None,
        )

    async def may_register(self) -> bool:
        return self.believed

    async def record(self) -> BrokerRecord | None:
        item = await self.store.get(KEYS.broker("a"))
        return decode_value(item.key, item.value, BrokerRecord) if item else None

    async def a_while(self, seconds: float = 0.01) -> None:
        await self.runtime.clock.sleep(seconds)

    def held(self) -> bool:
        return self.registration.held

    def reachable(self) -> bool:
        return self.registration.reachable

    def replaced(self) -> bool:
        return self.registration.replaced


@asynccontextmanager
async def registered() -> AsyncGenerator[Registered]:
    it = Registered()
    it.registration.start()
    await it.a_while()
    try:
        yield it
    finally:
        await it.registration.aclose()


@virtually
async def test_it_registers_at_once_and_becomes_eligible_after_the_delay() -> None:
    async with registered() as it:
        assert await it.record() == ME
        await it.a_while(REBALANCE_DELAY_S - 0.5)
        assert await it.record() == ME
        await it.a_while(1.0)
        assert await it.record() == msgspec.structs.replace(ME, eligible=True)


@virtually
async def test_the_lease_is_kept_alive_thrice_in_its_time() -> None:
    async with registered() as it:
        await it.a_while(10.0)
        it.network.calls.clear()
        await it.a_while(600.0)
        assert set(it.network.calls) == {"keep_alive"}
        assert 295 <= it.network.calls["keep_alive"] <= 301
        assert await it.record() is not None


@virtually
async def test_the_end_revokes_the_lease() -> None:
    async with registered() as it:
        pass
    assert await it.record() is None


@virtually
async def test_an_outage_within_the_lease_changes_nothing() -> None:
    async with registered() as it:
        lease_id = it.registration.lease_id
        it.network.cut()
        await it.a_while(3.0)
        assert not it.reachable()
        it.network.heal()
        await it.a_while(5.0)
        assert it.reachable()
        assert it.registration.lease_id == lease_id


@virtually
async def test_a_lost_lease_is_replaced_and_eligibility_begins_again() -> None:
    async with registered() as it:
        await it.a_while(5.0)
        lease_id = it.registration.lease_id
        it.network.cut()
        await it.a_while(10.0)
        assert not it.held()
        assert await it.record() is None
        it.network.heal()
        await it.a_while(3.0)
        assert it.held()
        assert it.registration.lease_id != lease_id
        assert it.registration.settling
        assert await it.record() == ME
        await it.a_while(8.0)
        assert await it.record() == msgspec.structs.replace(ME, eligible=True)


@virtually
async def test_the_lease_counts_from_before_the_keep_alive_was_sent() -> None:
    async with registered() as it:
        await it.a_while(1.9)
        it.network.way_s_max = 0.9
        sent_s = it.runtime.clock.monotonic()
        await it.a_while(2.0)
        it.network.cut()
        await it.a_while(sent_s + 0.11 + LEASE_TTL_S - it.runtime.clock.monotonic())
        assert not it.held(), "though the answer came later"


@virtually
async def test_nothing_is_registered_in_a_store_that_is_not_believed() -> None:
    async with registered() as it:
        it.believed = False
        for item in (await it.store.range(KEYS.root)).items:
            await it.store.delete(item.key)
        it.registration.register_again()
        await it.a_while(30.0)
        assert await it.record() is None
        it.believed = True
        await it.a_while(3.0)
        assert await it.record() is not None


@virtually
async def test_a_process_that_finds_another_in_its_place_ends() -> None:
    async with registered() as it:
        other = msgspec.structs.replace(ME, incarnation="a2")
        await it.store.put(KEYS.broker("a"), encode_value(other))
        it.registration.set_stopping()
        await it.a_while(1.0)
        assert it.replaced()
        assert await it.record() == other
        await it.a_while(60.0)
        assert await it.record() == other


@virtually
async def test_the_process_that_starts_later_takes_over_and_ends_its_draining() -> None:
    it = Registered()
    await it.store.put(KEYS.broker("a"), encode_value(msgspec.structs.replace(ME, incarnation="a0")))
    await it.store.put(KEYS.drained("a"), b"")
    it.registration.start()
    await it.a_while(1.0)
    assert await it.record() == ME
    assert await it.store.get(KEYS.drained("a")) is None
    await it.store.put(KEYS.drained("a"), b"")
    it.registration.register_again()
    await it.a_while(1.0)
    assert await it.store.get(KEYS.drained("a")) is not None, "only a start ends it"
    await it.registration.aclose()


@virtually
async def test_a_registration_whose_answer_was_lost_is_found() -> None:
    it = Registered()
    it.network.error_share = 0.7
    it.registration.start()
    await it.a_while(60.0)
    it.network.error_share = 0.0
    await it.a_while(10.0)
    assert it.held()
    assert not it.replaced()
    await it.registration.aclose()
