"""A paced store sends a limited number of requests per second, one at a time. A throttled store moves a limited number
of bytes per second."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.storage.archive_scenes import GatedStore
from tests.storage.instant_clock import InstantClock

from tidelog.storage.errors import NotFound
from tidelog.storage.object_store import ByteRange
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.partial_uploads import partial_uploads_of
from tidelog.storage.stores.rationing import PacedObjectStore, ThrottledObjectStore


async def test_a_limited_number_of_requests_of_any_kind_pass_per_second() -> None:
    clock = InstantClock()
    store = PacedObjectStore(MemoryObjectStore(), Runtime(clock), 4.0)
    began_s = clock.now_s
    await store.create("a", b"x")
    version = await store.put("a", b"y")
    assert (await store.head("a")).version == version
    assert (await store.get("a")).data == b"y"
    assert len(await store.list("")) == 1
    await store.delete("a")
    with pytest.raises(NotFound):
        await store.get("a")
    assert clock.slept_s == [0.25] * 6
    assert clock.now_s - began_s == 1.5


async def test_time_without_requests_earns_none() -> None:
    clock = InstantClock()
    store = PacedObjectStore(MemoryObjectStore(), Runtime(clock), 4.0)
    await store.list("")
    clock.now_s += 3_600
    for _ in range(3):
        await store.list("")
    assert clock.slept_s == [0.25] * 2


async def test_of_many_simultaneous_calls_one_is_in_flight() -> None:
    inner = GatedStore(MemoryObjectStore(), 0)
    store = PacedObjectStore(inner, Runtime(InstantClock()), 4.0)
    lists = [asyncio.create_task(store.list("")) for _ in range(5)]
    await inner.reached.wait()
    assert inner.calls == 1
    inner.gate.set()
    await asyncio.gather(*lists)
    assert inner.calls == 5


async def test_one_that_is_given_up_makes_room_for_the_next() -> None:
    inner = GatedStore(MemoryObjectStore(), 0)
    store = PacedObjectStore(inner, Runtime(InstantClock()), 4.0)
    first = asyncio.create_task(store.list(""))
    await inner.reached.wait()
    first.cancel()
    assert await store.list("") == []
    assert first.cancelled()


async def test_the_wrapped_store_is_found_through_the_wrapper(tmp_path: Path) -> None:
    """A sweep asks the wrapper for unfinished uploads, also through a throttled store."""
    local = LocalObjectStore(tmp_path)
    throttled = ThrottledObjectStore(local, Runtime(), 1_000)
    assert partial_uploads_of(PacedObjectStore(throttled, Runtime(), 4.0)) is not None
    await local.aclose()


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
    assert moved_bytes - 200 <= 100 * took_s <= moved_bytes  # the first second's burst, then one operation


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
