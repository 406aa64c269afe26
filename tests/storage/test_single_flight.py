"""All callers that ask while a slow read runs share it; a caller that asks later gets a new read."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.broker.brokers import until

from tidelog.services.broker.shard.leadership_proof import LeadershipProof
from tidelog.storage.runtime import SystemClock
from tidelog.storage.single_flight import SingleFlight


async def test_a_caller_that_asks_just_when_a_read_has_ended_gets_a_new_read() -> None:
    """This moment lies between the end of the read's task and the callbacks that report it."""
    flights: SingleFlight[str, int] = SingleFlight()
    gates = [asyncio.get_running_loop().create_future() for _ in range(2)]
    reads = iter(gates)
    first = asyncio.create_task(flights.run("a", lambda: next(reads)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gates[0].set_result(1)
    second = asyncio.create_task(flights.run("a", lambda: next(reads)))  # its first step follows the read's last step
    assert await first == 1
    assert flights.running("a")
    gates[1].set_result(2)
    assert await second == 2


async def test_the_error_of_a_read_that_nobody_awaits_any_more_is_not_reported() -> None:
    """A sweep that is cancelled leaves its read, which fails when the store is closed."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    flights: SingleFlight[str, int] = SingleFlight()
    gate: asyncio.Future[int] = loop.create_future()
    caller = asyncio.create_task(flights.run("a", lambda: gate))
    await until(lambda: flights.running("a"))
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.set_exception(RuntimeError("the store is closed"))
    await until(lambda: not flights.running("a"))
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


@pytest.mark.timeout(60)
async def test_a_call_that_comes_in_the_moment_when_a_check_has_ended_does_not_stop_the_broker() -> None:
    """The call needs its own check. An earlier version asked for one without end and let nothing else run."""
    checks: list[asyncio.Future[bool]] = []

    async def overtaken() -> bool:
        checks.append(asyncio.get_running_loop().create_future())
        return await checks[-1]

    proof = LeadershipProof(overtaken, SystemClock())
    first = asyncio.create_task(proof.led())
    await until(lambda: len(checks) == 1)
    checks[0].set_result(False)
    second = asyncio.create_task(proof.led())
    assert await first
    await until(lambda: len(checks) == 2)
    checks[1].set_result(False)
    assert await second
