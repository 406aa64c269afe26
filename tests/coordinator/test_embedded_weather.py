"""The embedded store on a bucket that fails like object stores do, from a seed: its answers are true, and memory and
bucket agree in the end."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.storage.instant_clock import InstantClock
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import GetKey, PutKey, unchanged
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

CLIENTS, STEPS = 4, 40
BAD_WEATHER = FaultPlan(unavailable=0.1, contended=0.05, reset=0.1, lost_answer=0.1, delayed=0.1, delay_s_max=3.0)


@dataclass
class Counter:
    """A counter that clients raise by compare and put. `acknowledged` raises happened; those `in_doubt` may have
    happened."""

    acknowledged: int = 0
    in_doubt: int = 0
    seen: list[int] = field(default_factory=list)


class Weather:
    """A store on a bucket with faults, and the same bucket without them."""

    def __init__(self, seed: int) -> None:
        self.choices = random.Random(seed)
        self.bucket = MemoryObjectStore()
        self.runtime = Runtime(InstantClock(), SeededEntropy(seed))
        self.faulty = FaultyObjectStore(self.bucket, FaultPlan(), self.runtime)

    async def open(self) -> EmbeddedKeyValueStore:
        journal = Journal(self.faulty, self.runtime)
        await journal.open()
        store = EmbeddedKeyValueStore(self.runtime, journal)
        await store.open()
        return store

    async def raise_by_one(self, store: EmbeddedKeyValueStore, counter: Counter) -> None:
        """Raise the count and a second key, which must always be equal."""
        found = await store.get("count")
        assert found is not None
        counter.seen.append(int(found.value))
        value = b"%d" % (int(found.value) + 1)
        try:
            result = await store.transact(
                [unchanged(found)], [PutKey("count", value), PutKey("twin", value)], [GetKey("count"), GetKey("twin")]
            )
        except Unavailable:
            counter.in_doubt += 1
            return
        counter.acknowledged += result.succeeded
        assert len({item.value for item in result.found if item}) <= 1


async def contents(store: EmbeddedKeyValueStore) -> list[object]:
    return list((await store.range("")).items)


@pytest.mark.parametrize("seed", range(30))
async def test_in_bad_weather_no_change_is_lost_doubled_or_half_done(seed: int) -> None:
    weather, counter = Weather(seed), Counter()
    store = await weather.open()
    await store.transact([], [PutKey("count", b"0"), PutKey("twin", b"0")])
    weather.faulty.plan = BAD_WEATHER

    async def client() -> None:
        last = -1
        for _ in range(STEPS):
            await weather.raise_by_one(store, counter)
            assert counter.seen[-1] >= last
            last = counter.seen[-1]

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    weather.faulty.plan = FaultPlan()
    await weather.faulty.land_all()
    await store.put("calm", b"")
    again = await weather.open()
    assert await contents(again) == await contents(store)
    count, twin = await store.get("count"), await store.get("twin")
    assert count
    assert twin
    assert count.value == twin.value
    assert counter.acknowledged <= int(count.value) <= counter.acknowledged + counter.in_doubt
    assert counter.acknowledged > 0
    assert counter.in_doubt > 0
    await store.aclose()
    await again.aclose()
