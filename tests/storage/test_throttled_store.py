"""A throttled store passes its conformance suite and no more bytes than its ration."""

from __future__ import annotations

import asyncio

from tests.storage.instant_clock import InstantClock

from tidelog.storage.object_store import ByteRange
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.throttled_store import ThrottledObjectStore


def throttled(bytes_per_s: int) -> tuple[ThrottledObjectStore, InstantClock]:
    clock = InstantClock()
    return ThrottledObjectStore(MemoryObjectStore(), Runtime(clock), bytes_per_s), clock


async def test_reads_and_writes_share_the_ration() -> None:
    store, clock = throttled(100)
    began_s = clock.now_s
    for number in range(10):
        await store.put(f"a/{number}", b"x" * 50)
    for number in range(10):
        await store.get(f"a/{number}")
    moved_bytes, took_s = 1_000, clock.now_s - began_s
    assert moved_bytes - 200 <= 100 * took_s <= moved_bytes  # a second's burst before, one operation after


async def test_a_burst_of_a_second_passes_at_once_and_idle_time_earns_no_more() -> None:
    store, clock = throttled(100)
    clock.now_s += 3_600
    await store.create("a", b"x" * 100)
    await store.create("b", b"x")
    assert clock.slept_s == []
    await store.create("c", b"x")
    assert clock.slept_s == [0.01]


async def test_an_object_larger_than_the_ration_passes_and_is_paid_for_afterwards() -> None:
    store, clock = throttled(100)
    await store.put("a", b"x" * 1_000)
    assert clock.slept_s == []
    assert (await store.get("a", ByteRange(0, 10))).data == b"x" * 10
    assert sum(clock.slept_s) == 9.0


async def test_requests_without_bytes_never_wait() -> None:
    store, clock = throttled(1)
    await store.put("a", b"x" * 1_000)
    assert (await store.head("a")).size == 1_000
    assert len(await store.list("")) == 1
    await store.delete("a")
    assert clock.slept_s == []


async def test_side_by_side_they_wait_for_the_same_ration() -> None:
    store, clock = throttled(100)
    began_s = clock.now_s
    await asyncio.gather(*(store.put(f"a/{number}", b"x" * 100) for number in range(5)))
    await store.get("a/0")
    assert clock.now_s - began_s >= 4.0
