"""The faulty store: each fault does what it says, a seed repeats it, and it needs no event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore
from tests.storage.stores.manual_time import manual_runtime

from tidelog.storage.errors import Contended, NotFound, TidelogError, Unavailable
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.retrying import RetryingObjectStore

EVERY_FAULT = FaultPlan(unavailable=0.1, contended=0.1, reset=0.1, lost_answer=0.1, delayed=0.1, slow=0.3)


async def test_an_unavailable_write_did_nothing() -> None:
    clock, runtime = manual_runtime()
    memory = MemoryObjectStore(clock)
    store = FaultyObjectStore(memory, FaultPlan(unavailable=1.0), runtime)
    for call in (store.create("a", b""), store.put("a", b""), store.get("a"), store.head("a"), store.list("")):
        with pytest.raises(Unavailable):
            await call
    assert list(await memory.list("")) == []


async def test_a_contended_write_did_nothing_and_reads_are_never_contended() -> None:
    clock, runtime = manual_runtime()
    memory = MemoryObjectStore(clock)
    store = FaultyObjectStore(memory, FaultPlan(contended=1.0), runtime)
    with pytest.raises(Contended):
        await store.create("a", b"")
    assert list(await store.list("")) == []


async def test_a_lost_answer_comes_after_the_effect() -> None:
    clock, runtime = manual_runtime()
    memory = MemoryObjectStore(clock)
    store = FaultyObjectStore(memory, FaultPlan(lost_answer=1.0), runtime)
    with pytest.raises(Unavailable):
        await store.create("a", b"x")
    assert (await memory.get("a")).data == b"x"
    with pytest.raises(Unavailable):
        await store.delete("a")
    with pytest.raises(NotFound):
        await memory.get("a")


async def test_a_reset_write_took_effect_or_did_not() -> None:
    clock, runtime = manual_runtime()
    memory = MemoryObjectStore(clock)
    store = FaultyObjectStore(memory, FaultPlan(reset=1.0), runtime)
    for number in range(40):
        with pytest.raises(Unavailable):
            await store.create(f"k/{number}", b"")
    assert 5 < len(await memory.list("k/")) < 35


async def test_a_delayed_write_lands_later_and_after_others() -> None:
    clock, runtime = manual_runtime()
    memory = MemoryObjectStore(clock)
    store = FaultyObjectStore(memory, FaultPlan(delayed=1.0, delay_s_max=10.0), runtime)
    body = bytearray(b"late")
    with pytest.raises(Unavailable):
        await store.put("a", body)
    body[:] = b"GONE"  # the caller may reuse its buffer
    store.plan = FaultPlan()
    await store.put("a", b"early")
    assert (await store.get("a")).data == b"early"
    assert store.landings == 1
    await clock.sleep(10.0)
    assert (await store.get("a")).data == b"late"
    assert store.landings == 0


async def test_a_delayed_create_that_comes_too_late_changes_nothing() -> None:
    clock, runtime = manual_runtime()
    memory = MemoryObjectStore(clock)
    store = FaultyObjectStore(memory, FaultPlan(delayed=1.0), runtime)
    with pytest.raises(Unavailable):
        await store.create("a", b"late")
    await memory.create("a", b"other")
    await store.land_all()
    assert (await memory.get("a")).data == b"other"


async def test_a_slow_call_waits_on_the_runtimes_clock() -> None:
    clock, runtime = manual_runtime()
    store = FaultyObjectStore(MemoryObjectStore(clock), FaultPlan(slow=1.0, slow_s_max=3.0), runtime)
    await store.put("a", b"")
    assert len(clock.sleeps) == 1
    assert 0 < clock.sleeps[0] < 3.0


async def test_a_seed_repeats_its_run_and_another_seed_does_not() -> None:
    first, second, other = [await _history(seed) for seed in (1, 1, 2)]
    assert first == second != other


async def test_every_fault_happens_about_as_often_as_planned() -> None:
    told = Counter(line.rpartition(" ")[2] for line in await _history(3, calls=1_000) if "injected" in line)
    assert set(told) == {"unavailable", "contended", "reset", "lost_answer", "delayed"}
    assert all(50 < times < 200 for times in told.values())


@pytest.mark.parametrize("plan", [{"unavailable": 0.6, "reset": 0.6}, {"slow": -0.1}, {"slow": 1.1}])
def test_a_plan_of_impossible_chances_is_refused(plan: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        FaultPlan(**plan)


def test_the_wrappers_and_the_memory_store_need_no_event_loop() -> None:
    clock, runtime = manual_runtime(seed=11)
    faulty = FaultyObjectStore(MemoryObjectStore(clock), EVERY_FAULT, runtime)
    store = RetryingObjectStore(CountingObjectStore(faulty), runtime)

    async def run() -> int:
        for number in range(50):
            await store.put(f"k/{number}", b"x")
        return len(await store.list("k/"))

    assert _driven(run()) == 50
    assert clock.sleeps


def _driven(coroutine: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine that never waits for an event loop; fail if it asks for one."""
    try:
        asked_for = coroutine.send(None)
    except StopIteration as ended:
        result: int = ended.value
        return result
    raise AssertionError(f"waits for {asked_for!r}")


async def _history(seed: int, calls: int = 60) -> list[str]:
    clock, runtime = manual_runtime(seed)
    memory = MemoryObjectStore(clock)
    store = FaultyObjectStore(memory, EVERY_FAULT, runtime)
    lines: list[str] = []
    for number in range(calls):
        try:
            await store.create(f"k/{number % 50}", b"%d" % number)
            lines.append(f"{number} won")
        except TidelogError as error:
            lines.append(f"{number} {type(error).__name__} {error}")
    await store.land_all()
    return [*lines, *(f"{info.key} {info.version}" for info in await memory.list("")), str(clock.now_s)]
