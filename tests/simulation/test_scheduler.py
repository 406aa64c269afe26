"""The event loop of the simulation: asyncio's promises inside a process, one seeded order between processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from tests.simulation.scheduler import Process, ProcessClock, Scheduler, Wait


def run(scheduler: Scheduler) -> None:
    while scheduler.step():
        pass


def test_tasks_of_a_process_run_in_the_order_of_asyncio() -> None:
    order: list[str] = []

    async def work(name: str) -> None:
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    scheduler = Scheduler(1)
    scheduler.spawn(Process("p"), "both", both())
    run(scheduler)
    assert order == ["a begins", "b begins", "a ends", "b ends"]


def test_locks_threads_and_timeouts_of_asyncio_work_in_virtual_time() -> None:
    found: list[object] = []

    async def work() -> None:
        async with asyncio.Lock():
            found.append(await asyncio.to_thread(lambda: 7))
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0):
                await asyncio.get_running_loop().create_future()
        found.append(asyncio.get_running_loop().time())

    scheduler = Scheduler(1)
    scheduler.spawn(Process("p"), "work", work())
    run(scheduler)
    assert found == [7, 3.0]


def test_the_seed_chooses_the_order_of_processes() -> None:
    def order(seed: int) -> str:
        names: list[str] = []

        async def work(name: str) -> None:
            for _ in range(5):
                await Wait(scheduler.now_ms + 1)
                names.append(name)

        scheduler = Scheduler(seed)
        for name in "abc":
            scheduler.spawn(Process(name), name, work(name))
        run(scheduler)
        return "".join(names)

    assert [order(seed) for seed in range(10)] == [order(seed) for seed in range(10)]
    assert len({order(seed) for seed in range(10)}) > 5


def test_a_stalled_process_does_nothing_and_its_clock_goes_on() -> None:
    times: list[tuple[int, float]] = []
    process = Process("p", clock_rate=2.0)

    async def work() -> None:
        clock = ProcessClock(scheduler, process)
        await clock.sleep(0.02)
        times.append((scheduler.now_ms, clock.monotonic()))
        scheduler.stall(process, 100)
        await clock.sleep(0.02)
        times.append((scheduler.now_ms, clock.monotonic()))

    scheduler = Scheduler(1)
    scheduler.spawn(process, "work", work())
    run(scheduler)
    assert times == [(10, 0.02), (110, 0.22)]


def test_a_crash_ends_all_tasks_where_they_are_even_those_that_wait_on_their_way_out() -> None:
    reached: list[str] = []

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            reached.append("the end of the generator")

    async def inner() -> None:
        async with aclosing(numbers()) as source:
            async for _ in source:
                await asyncio.sleep(10)
                reached.append("after the sleep")

    async def work() -> None:
        try:
            await asyncio.gather(inner(), inner())
        finally:
            await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
            reached.append("the end")

    async def witness() -> None:
        await asyncio.sleep(5)
        scheduler.kill(process)

    scheduler, process = Scheduler(1), Process("p")
    scheduler.spawn(process, "work", work())
    scheduler.spawn(Process("witness"), "witness", witness())
    run(scheduler)
    scheduler.close_all()
    assert reached == []


def test_the_error_of_a_task_ends_the_run() -> None:
    async def work() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("broken")

    scheduler = Scheduler(1)
    scheduler.spawn(Process("p"), "work", work())
    with pytest.raises(RuntimeError, match="broken"):
        run(scheduler)
