"""A paced store asks one thing after the other, and no more of them a second than it was told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.storage.archive_scenes import GatedStore
from tests.storage.instant_clock import InstantClock

from tidelog.storage.errors import NotFound
from tidelog.storage.partial_uploads import partial_uploads_of
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.rationing import PacedObjectStore
from tidelog.storage.upkeep.throttled_store import ThrottledObjectStore


async def test_so_many_a_second_pass_whatever_they_are() -> None:
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


async def test_of_many_who_ask_at_once_one_is_under_way() -> None:
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


async def test_what_lies_under_it_is_found_through_it(tmp_path: Path) -> None:
    """A sweep asks for unfinished uploads by it, and by a throttled store between."""
    local = LocalObjectStore(tmp_path)
    throttled = ThrottledObjectStore(local, Runtime(), 1_000)
    assert partial_uploads_of(PacedObjectStore(throttled, Runtime(), 4.0)) is not None
    await local.aclose()
