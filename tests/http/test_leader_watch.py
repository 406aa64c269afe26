"""A request waits for a leader that was replaced for two more checks, and no longer."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.sockets import WAIT_S

from tidelog.services.http.forwarding.leader_watch import LeaderWatch
from tidelog.storage.errors import Unavailable

EVERY_S = 0.01


async def test_a_block_is_cut_off_once_its_leader_is_another() -> None:
    looks: list[bool] = []

    def still_leads() -> bool:
        looks.append(len(looks) < 3)
        return looks[-1]

    async with asyncio.timeout(WAIT_S):
        with pytest.raises(Unavailable, match="outcome is unknown"):
            async with LeaderWatch(still_leads, EVERY_S):
                await asyncio.Event().wait()
    assert looks == [True, True, True, False, False]


async def test_a_leader_that_comes_back_is_waited_for() -> None:
    told = [False, True, False, True, True]
    done = asyncio.Event()

    def still_leads() -> bool:
        leads = told.pop(0) if told else True
        if not told:
            done.set()
        return leads

    async with asyncio.timeout(WAIT_S):
        async with LeaderWatch(still_leads, EVERY_S):
            await done.wait()


async def test_an_error_in_the_block_is_raised() -> None:
    with pytest.raises(KeyError):
        async with LeaderWatch(lambda: True, EVERY_S):
            raise KeyError


async def test_nobody_looks_after_the_block() -> None:
    looks: list[float] = []
    loop = asyncio.get_running_loop()
    async with LeaderWatch(lambda: looks.append(loop.time()) is None, EVERY_S):
        pass
    later = asyncio.Event()
    loop.call_later(3 * EVERY_S, later.set)
    await later.wait()
    assert looks == []
