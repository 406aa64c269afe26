"""The retrying wrapper: what it sends again, for how long, and which errors it passes on."""

from __future__ import annotations

import pytest
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore
from tests.storage.stores.manual_time import manual_runtime

from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Conflict, Contended, NotFound, Unavailable
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.retrying import RetryingObjectStore, RetryPolicy
from tidelog.storage.stores.wrapping import Verb


async def test_an_outage_is_waited_out() -> None:
    clock, runtime = manual_runtime()
    faulty = FaultyObjectStore(MemoryObjectStore(clock), FaultPlan(unavailable=0.8), runtime)
    counting = CountingObjectStore(faulty)
    store = RetryingObjectStore(counting, runtime)
    await store.create("a", b"x")
    assert (await store.get("a")).data == b"x"
    assert counting.usage().total().requests == len(clock.sleeps) + 2
    assert counting.usage().total().failures == len(clock.sleeps) > 0


async def test_no_try_begins_after_the_deadline() -> None:
    clock, runtime = manual_runtime()
    counting = CountingObjectStore(FaultyObjectStore(MemoryObjectStore(clock), FaultPlan(unavailable=1.0), runtime))
    store = RetryingObjectStore(counting, runtime, RetryPolicy(deadline_s=30.0))
    with pytest.raises(Unavailable, match="injected"):
        await store.get("a")
    assert sum(clock.sleeps) <= 30.0
    assert counting.usage().requests(Verb.GET) == len(clock.sleeps) + 1 > 10


async def test_the_waits_are_full_jitter_under_a_doubling_bound() -> None:
    clock, runtime = manual_runtime()
    faulty = FaultyObjectStore(MemoryObjectStore(clock), FaultPlan(contended=1.0), runtime)
    policy = RetryPolicy(deadline_s=200.0, backoff=Backoff(first_s=0.05, max_s=2.0, least_share=0.0))
    with pytest.raises(Contended):
        await RetryingObjectStore(faulty, runtime, policy).create("a", b"")
    bounds_s = [min(2.0, 0.05 * 2**failures) for failures in range(len(clock.sleeps))]
    assert all(0 <= wait_s <= bound_s for wait_s, bound_s in zip(clock.sleeps, bounds_s, strict=True))
    shares = [wait_s / bound_s for wait_s, bound_s in zip(clock.sleeps, bounds_s, strict=True)]
    assert min(shares) < 0.1
    assert max(shares) > 0.9


async def test_an_answer_is_not_asked_for_twice() -> None:
    clock, runtime = manual_runtime()
    counting = CountingObjectStore(MemoryObjectStore(clock))
    store = RetryingObjectStore(counting, runtime)
    await store.create("a", b"")
    with pytest.raises(Conflict):
        await store.create("a", b"")
    with pytest.raises(NotFound):
        await store.get("b")
    assert (counting.usage().requests(), clock.sleeps) == (3, [])


async def test_a_create_whose_answer_was_lost_meets_itself_as_a_conflict() -> None:
    clock, runtime = manual_runtime()
    memory = MemoryObjectStore(clock)
    store = RetryingObjectStore(FaultyObjectStore(memory, FaultPlan(lost_answer=0.9), runtime), runtime)
    with pytest.raises(Conflict):
        await store.create("a", b"my id")
    assert (await memory.get("a")).data == b"my id"
